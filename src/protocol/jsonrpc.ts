import { parseExactly, sizeFault } from './json-parse.ts'
import { elements, type JsonPath } from './json-span.ts'

/** The parts of a JSON-RPC 2.0 message that a gateway must read. */

export type RequestId = string | number

/** A message: its text, and the value parsed from the text. */
export interface Envelope {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
}

export type Kind = 'request' | 'notification' | 'response'

export const PARSE_ERROR = -32700
export const INVALID_REQUEST = -32600
export const METHOD_NOT_FOUND = -32601
export const INVALID_PARAMS = -32602
export const INTERNAL_ERROR = -32603

/** Reads a single message (not a batch); undefined if the text is no JSON object with a JSON-RPC shape. */
export function readMessage(text: string): Envelope | undefined {
  const value = parseJson(text)
  return isObject(value) && kindOf(value) !== undefined ? { text, value } : undefined
}

const MAX_BATCH = 100

/** Reads a body, already parsed as `value`: a single message, or a batch of 1 to 100; undefined for anything else. */
export function readMessages(text: string, value: unknown): Envelope[] | undefined {
  if (!Array.isArray(value))
    return isObject(value) && kindOf(value) !== undefined ? [{ text, value }] : undefined
  if (value.length === 0 || value.length > MAX_BATCH) return undefined
  const messages = [...elements(text, text.indexOf('['))].flatMap(({ start, end }, index) => {
    const message: unknown = value[index]
    const isMessage = isObject(message) && kindOf(message) !== undefined
    return isMessage ? [{ text: text.slice(start, end), value: message }] : []
  })
  return messages.length === value.length ? messages : undefined
}

/** As `parseExactly`, but undefined for invalid JSON and for text that would block the event loop (`sizeFault`). */
export function parseJson(text: string): unknown {
  if (sizeFault(text) !== undefined) return undefined
  try {
    return parseExactly(text)
  } catch {
    return undefined
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function isEmpty(object: object): boolean {
  for (const _ in object) return false
  return true
}

export function at(value: unknown, path: JsonPath): unknown {
  let found: unknown = value
  for (const step of path) {
    if (Array.isArray(found) && typeof step === 'number') found = found[step]
    else if (isObject(found) && typeof step === 'string') found = found[step]
    else return undefined
  }
  return found
}

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === 'string' || (typeof value === 'number' && Number.isFinite(value))
}

/**
 * Whether the response id `told` equals the request id `asked`. Accepts a number sent back as text, as some servers do.
 */
export function isIdOf(told: unknown, asked: RequestId): boolean {
  return told === asked || (typeof asked === 'number' && told === String(asked))
}

/** Returns the id of a possible request; null without a readable id. */
export function idOf(value: unknown): RequestId | null {
  return isObject(value) && isRequestId(value.id) ? value.id : null
}

/** Returns the kind of a JSON-RPC 2.0 message; undefined for any other value. */
export function kindOf(value: Readonly<Record<string, unknown>>): Kind | undefined {
  if (value.jsonrpc !== '2.0') return undefined
  if (typeof value.method === 'string') {
    if (value.params !== undefined && !isObject(value.params)) return undefined
    if (value.id === undefined) return 'notification'
    return isRequestId(value.id) ? 'request' : undefined
  }
  const isResult = isObject(value.result) && value.error === undefined
  const isError = isObject(value.error) && value.result === undefined
  if (!isResult && !isError) return undefined
  return isRequestId(value.id) || (isError && (value.id === null || value.id === undefined))
    ? 'response'
    : undefined
}

/** Returns the `params` of a request or notification; an empty object when absent. */
export function paramsOf(value: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return isObject(value.params) ? value.params : {}
}

/** Returns the text of an error response; `id` is null when the request's id could not be read. */
export function errorText(id: RequestId | null, code: number, message: string, data?: unknown): string {
  return JSON.stringify({
    jsonrpc: '2.0',
    id,
    error: data === undefined ? { code, message } : { code, message, data },
  })
}

/** Returns the text of a successful response; `result` is JSON text already. */
export function resultText(id: RequestId, result: string): string {
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`
}

export function requestText(id: RequestId, method: string, params?: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', id, method, params })
}

export function notificationText(method: string, params?: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', method, params })
}
