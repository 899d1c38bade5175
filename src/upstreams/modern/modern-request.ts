import type { Message } from '../../mesh/call.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { locate, prependMember } from '../../protocol/json-span.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  encodeHeaderValue,
  LOG_LEVEL_KEY,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
} from '../../protocol/versions.ts'

/** An object without members. */
const empty = /\{\s*\}/y

type Value = Message['value']

/** Whether a request states its protocol version. */
export function isModern(value: Value): boolean {
  return versionOf(value) !== undefined
}

/**
 * Returns the `_meta` members that describe the client, as JSON text. In the legacy era, `initialize` holds these
 * facts.
 */
export function metaOf(initializeParams: Value, logLevel?: string): string {
  const { capabilities = {}, clientInfo } = initializeParams
  return members({
    [PROTOCOL_VERSION_KEY]: MODERN_VERSION,
    ...(clientInfo === undefined ? {} : { [CLIENT_INFO_KEY]: clientInfo }),
    [CLIENT_CAPABILITIES_KEY]: capabilities,
    ...(logLevel === undefined ? {} : { [LOG_LEVEL_KEY]: logLevel }),
  })
}

/** Returns the request with these members in its `_meta`; the rest stays as written. */
export function withMeta(text: string, meta: string): string {
  const params = locate(text, ['params'])
  if (params === undefined) return prependMember(text, 'params', `{"_meta":{${meta}}}`)
  const own = locate(text, ['params', '_meta'])
  if (own === undefined) return withMembers(text, params.start, `"_meta":{${meta}}`)
  return text[own.start] === '{' ? withMembers(text, own.start, meta) : text
}

/** Returns the text with members, given as JSON text, inserted first in the object at `at`. */
export function withMembers(text: string, at: number, members: string): string {
  empty.lastIndex = at
  const comma = empty.test(text) ? '' : ','
  return `${text.slice(0, at + 1)}${members}${comma}${text.slice(at + 1)}`
}

/** Returns headers that repeat parts of the body, so intermediaries need not parse the body. */
export function mirrorHeaders(value: Value): Record<string, string> {
  const method = value.method as string
  const name = nameOf(method, paramsOf(value))
  const version = versionOf(value) ?? MODERN_VERSION
  const headers: Record<string, string> = { 'mcp-protocol-version': version, 'mcp-method': method }
  if (typeof name === 'string') headers['mcp-name'] = encodeHeaderValue(name)
  return headers
}

function nameOf(method: string, params: Value): unknown {
  switch (method) {
    case 'tools/call':
    case 'prompts/get':
      return params.name
    case 'resources/read':
      return params.uri
    default:
      return method.startsWith('tasks/') ? params.taskId : undefined
  }
}

function versionOf(value: Value): string | undefined {
  const { _meta } = paramsOf(value)
  const version = isObject(_meta) ? _meta[PROTOCOL_VERSION_KEY] : undefined
  return typeof version === 'string' ? version : undefined
}

function members(object: Readonly<Record<string, unknown>>): string {
  return JSON.stringify(object).slice(1, -1)
}
