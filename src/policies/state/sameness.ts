import { createHash } from 'node:crypto'
import type { Call, InboundHeaders } from '../../mesh/call.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { isOfOneRequest } from '../../protocol/task.ts'

/**
 * Most levels of arguments to compare as values. Deeper arguments are compared as text: no caller may exhaust the
 * stack.
 */
const DEEPEST = 64

/** Decimal digits that a double always keeps. */
const DIGITS = 15

/** Returns a short name for these texts in this order: SHA-256 in base64url, 43 characters. */
export function digestOf(...texts: string[]): string {
  return createHash('sha256').update(JSON.stringify(texts)).digest('base64url')
}

/**
 * Returns the same text for calls with the same arguments, whatever the order of their keys and the white space.
 * Numbers that `JSON.parse` may have rounded are compared as written.
 */
export function argumentsOf({ message: { text, value } }: Call): string {
  let isExact = true
  const visit = (held: unknown) => {
    if (typeof held === 'number' && isRounded(held)) isExact = false
  }
  const canonical = canonicalJson(paramsOf(value).arguments ?? {}, { maxDepth: DEEPEST, visit })
  if (isExact && canonical !== undefined) return canonical
  const span = locate(text, ['params', 'arguments'])
  return span === undefined ? (canonical ?? text) : text.slice(span.start, span.end)
}

/** The callers that count as the same, from narrow to wide: one caller, one tenant, or all callers of a server. */
export type Sharing = 'caller' | 'tenant' | 'server'

/** The header with a request's tenant; without it, the client's name counts. */
export const TENANT_HEADER = 'x-breakwater-tenant'

export function namedTenant({ [TENANT_HEADER]: tenant }: InboundHeaders): string | undefined {
  return typeof tenant === 'string' && tenant !== '' ? tenant : undefined
}

/** Returns the share of a client without a named tenant. Headers hold no line end, so no tenant has this share. */
export const shareOfClient = (name: string): string => `client\n${name}`

/** Returns whether a call's tenant has its own share of limits; all new tenant names together have one share. */
export const hasOwnShare = ({ tenant, countsAs }: Call): boolean =>
  countsAs === tenant || countsAs === shareOfClient(tenant)

/**
 * Returns the identity for which the server runs a call, as far as `sharing` separates callers. Forwarded headers of
 * the agent always separate callers: the server may use them to tell principals apart, and no principal may get
 * another's answer. The protocol's own headers only repeat the message, and tracing headers belong to a single try.
 * `Authorization` never separates callers: no server gets it, and an agent refreshes its token between two tries of a
 * call. A client with the name of a tenant is a different caller.
 */
export function identityOf(call: Call, sharing: Sharing = 'tenant'): string {
  const { headers = {} } = call
  const tenant = namedTenant(call.inbound) === undefined ? shareOfClient(call.tenant) : call.tenant
  const own = Object.entries(headers).filter(([name]) => !name.startsWith('mcp-') && !isOfOneRequest(name))
  const named = own.sort(([a], [b]) => (a < b ? -1 : 1))
  switch (sharing) {
    case 'caller':
      return JSON.stringify([callerOf(call), tenant, ...named])
    case 'tenant':
      return JSON.stringify([tenant, ...named])
    case 'server':
      return JSON.stringify(named)
  }
}

/**
 * Returns the only reader, within an identity, of the answer to a write: a digest of the `Authorization`, or empty for
 * every caller. Anybody may use a client's name, and nothing verifies a token: another token may belong to another
 * agent. A tenant named by the request is one principal, whatever its tokens.
 */
export function readerOf({ inbound }: Call, sharing: Sharing): string {
  const { authorization } = inbound
  if (sharing === 'server' || namedTenant(inbound) !== undefined || typeof authorization !== 'string')
    return ''
  return digestOf('authorization', authorization)
}

/**
 * Returns the lasting identity of a caller. The id of a caller without a session is valid only in this process, while
 * the caller is in use. The clients' descriptions of themselves and the headers visible to servers then identify the
 * caller.
 */
function callerOf({ caller: { id, initializeParams, headers, era } }: Call): unknown {
  return era === 'modern' ? [initializeParams, headers] : id
}

/** Returns whether reading may have changed the written digits. */
function isRounded(number: number): boolean {
  if (Number.isSafeInteger(number)) return false
  return !Number.isFinite(number) || number.toString().replace(/\D/g, '').length > DIGITS
}
