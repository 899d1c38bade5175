import { type Envelope, isObject, isRequestId, paramsOf, type RequestId } from './jsonrpc.ts'
import { edit, locate, splice, type Edit, type JsonPath } from './json-span.ts'
import { edited } from './large-message.ts'
import { withEntry } from './meta.ts'
import { ownText } from '../units/recent.ts'

/** A request with the caller's own id. */
interface Request {
  readonly id: RequestId
  readonly message: Envelope
}

const ID: JsonPath = ['id']
const ASKED_TOKEN: JsonPath = ['params', '_meta', 'progressToken']
const TOLD_TOKEN: JsonPath = ['params', 'progressToken']

/** Returns the exact text of the value at `path`; `null` without a value. */
export function rawAt(text: string, path: JsonPath): string {
  const span = locate(text, path)
  return span === undefined ? 'null' : text.slice(span.start, span.end)
}

/** Returns a message under another id, given as JSON text. */
export function withRawId(text: string, id: string): string {
  return splice(text, editAt(text, ID, id))
}

/** Returns the text of a request for the server, with the gateway's number `id` as its id and its progress token. */
export function toServer({ message: { text, value } }: Request, id: number): string {
  const edits = editAt(text, ID, String(id))
  if (hasProgressToken(value)) edits.push(...editAt(text, ASKED_TOKEN, String(id)))
  return splice(text, edits)
}

/** Returns the server's reply under the caller's id. */
export function replyToCaller<Reply extends Envelope>(call: Request, reply: Reply): Reply {
  const id = rawAt(call.message.text, ID)
  return edited(reply, (text) => editAt(text, ID, id), withEntry(reply.value, 'id', call.id))
}

/** The progress token of a caller's request: its exact text, and its value. */
export interface ProgressToken {
  readonly text: string
  readonly value: unknown
}

/** Returns the server's progress under the caller's token; undefined for a caller that asked for no progress. */
export function progressToCaller({ message }: Request, progress: Envelope): Envelope | undefined {
  if (!hasProgressToken(message.value)) return undefined
  return progressUnder({ text: rawAt(message.text, ASKED_TOKEN), value: tokenOf(message.value) }, progress)
}

/** Returns a request's progress token for keeping; undefined without a token, and for a token over 1,024 characters. */
export function progressTokenOf({ message }: Request): ProgressToken | undefined {
  if (!hasProgressToken(message.value)) return undefined
  const text = rawAt(message.text, ASKED_TOKEN)
  if (text.length > MAX_ID) return undefined
  const value = tokenOf(message.value)
  return { text: ownText(text), value: typeof value === 'string' ? ownText(value) : value }
}

/** Returns the server's progress under a token of the caller. */
export function progressUnder(token: ProgressToken, { text, value }: Envelope): Envelope {
  const edits = editAt(text, TOLD_TOKEN, token.text)
  return {
    text: splice(text, edits),
    value: { ...value, params: { ...paramsOf(value), progressToken: token.value } },
  }
}

function hasProgressToken(request: Envelope['value']): boolean {
  return isRequestId(tokenOf(request))
}

function tokenOf(request: Envelope['value']): unknown {
  const { _meta } = paramsOf(request)
  return isObject(_meta) ? _meta.progressToken : undefined
}

function editAt(text: string, path: JsonPath, value: string): Edit[] {
  const span = locate(text, path)
  return span === undefined ? [] : [edit(span, value)]
}

/**
 * Longest kept id and progress token, in characters of JSON. The gateway keeps ids of server requests until the answer,
 * and callers' tokens as long as a task.
 */
const MAX_ID = 1_024

/**
 * Returns the exact id text of a server's request. Undefined, so the request stays unanswered, if its id or progress
 * token is too long to keep.
 */
export function answerableId({ text, value }: Envelope): string | undefined {
  const id = rawAt(text, ID)
  const token = tokenOf(value)
  if (id.length > MAX_ID || (typeof token === 'string' && token.length > MAX_ID)) return undefined
  return ownText(id)
}
