import { createHash } from 'node:crypto'
import type { Call, InboundHeaders } from '../../mesh/call.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { isOfOneRequest } from '../../protocol/task.ts'

/** Deeper arguments are compared by their text, in levels: nobody may exhaust the stack. */
const DEEPEST = 64

/** Digits that a double always keeps. */
const DIGITS = 15

/** A short name for these texts in this order: SHA-256 in base64url, 43 characters. */
export function digestOf(...texts: string[]): string {
  return createHash('sha256').update(JSON.stringify(texts)).digest('base64url')
}

/**
 * A text that is the same for calls with the same arguments, whatever the order of their keys and the white space.
 * Numbers that `JSON.parse` may have rounded are compared as they were written.
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

/** The callers that count as one and the same, from narrow to wide: one caller, one tenant, or all callers of a server. */
export type Sharing = 'caller' | 'tenant' | 'server'

/** The header by which a request names its tenant; without it the client's name stands in. */
export const TENANT_HEADER = 'x-breakwater-tenant'

/** Returns the tenant that the header names, or undefined. */
export function namedTenant({ [TENANT_HEADER]: tenant }: InboundHeaders): string | undefined {
  return typeof tenant === 'string' && tenant !== '' ? tenant : undefined
}

/** Returns the share of a client without a named tenant. Headers hold no line end, so no tenant has this share. */
export const shareOfClient = (name: string): string => `client\n${name}`

/** Whether a call has a share of its own; all new names together have one. */
export const hasOwnShare = ({ tenant, countsAs }: Call): boolean =>
  countsAs === tenant || countsAs === shareOfClient(tenant)

/**
 * On whose behalf its server runs a call, as far as `sharing` tells callers apart. Headers of the agent that the
 * server gets always do: by them it may tell principals apart, and none may get the answer of another. The protocol's
 * own repeat what the message says, and those of tracing tell of one try. `Authorization` never does: no server gets
 * it, and an agent refreshes its token between two tries of one call. A client that bears the name of a tenant is another one.
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
 * The only reader, within one identity, of the answer to a write: a digest of the `Authorization`, or empty for every caller. Anybody may use
 * a client's name, and nothing verifies a token: another token may belong to another agent. A tenant that the request
 * names is one principal, whatever its tokens.
 */
export function readerOf({ inbound }: Call, sharing: Sharing): string {
  const { authorization } = inbound
  if (sharing === 'server' || namedTenant(inbound) !== undefined || typeof authorization !== 'string')
    return ''
  return digestOf('authorization', authorization)
}

/**
 * Returns the part of a caller that stays the same. Without a session, the id counts only in this process, and for as
 * long as the caller is in use. So the words of its clients on themselves and the headers that servers may see stand
 * for the caller.
 */
function callerOf({ caller: { id, initializeParams, headers, era } }: Call): unknown {
  return era === 'modern' ? [initializeParams, headers] : id
}

/** Whether other digits may have been written than were read. */
function isRounded(number: number): boolean {
  if (Number.isSafeInteger(number)) return false
  return !Number.isFinite(number) || number.toString().replace(/\D/g, '').length > DIGITS
}
