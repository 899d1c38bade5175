import {
  errorText,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  PARSE_ERROR,
  parseJson,
  type RequestId,
} from '../../protocol/jsonrpc.ts'
import type { Overlong } from '../../upstreams/stdio/lines.ts'

/** What a client said on one line: a message, or several as a batch. */
export interface Said {
  readonly messages: readonly Readonly<Record<string, unknown>>[]
  /** Of the requests among them: each wants an answer. */
  readonly ids: Set<RequestId>
}

/** Reads a line of a client; the text of an error when it says nothing, and undefined when it is empty. */
export function readLine(line: string | Overlong, limit: number): Said | string | undefined {
  if (typeof line !== 'string')
    return errorText(null, INVALID_REQUEST, `a message is larger than ${limit} bytes`)
  if (line.trim() === '') return undefined
  const value = parseJson(line)
  if (value === undefined) return errorText(null, PARSE_ERROR, 'Parse error: the line is not JSON')
  const messages = (Array.isArray(value) ? value : [value]).filter(isObject)
  const ids = messages.flatMap(({ id, method }) => (method !== undefined && isRequestId(id) ? [id] : []))
  return { messages, ids: new Set(ids) }
}
