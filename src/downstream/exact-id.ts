import type { Message, RequestId } from '../mesh/call.ts'
import { type Edit, edit, type JsonPath, locate, splice } from '../protocol/json-span.ts'
import { LargeMessage } from '../protocol/large-message.ts'
import { rawAt } from '../protocol/renumber.ts'
import { ownText } from '../units/recent.ts'
import type { Response } from './respond.ts'
import type { HttpReply } from '../wire/http-reply.ts'

/**
 * JavaScript rounds some ids, such as integers above 2^53: after parsing, several ids are equal and their texts differ.
 * So the gateway keeps the text of such an id, and writes the text into every answer.
 */

/** The original text of each rounded id, by HTTP response. */
const exact = new WeakMap<HttpReply, string>()

/** True when an id is a number that JavaScript may have rounded. */
export function isRounded(id: unknown): boolean {
  return typeof id === 'number' && !Number.isSafeInteger(id)
}

/** Returns a key for the id at a path; different ids of a client have different keys. */
export function keyOf(id: RequestId, { text }: Pick<Message, 'text'>, path: JsonPath = ['id']): RequestId {
  return isRounded(id) ? `#${rawAt(text, path)}` : id
}

/** Stores the exact id of a request for its response; `underKeptId` writes it. */
export function keepId(response: HttpReply, request: Pick<Message, 'text'>): void {
  // Copies the id, because a slice of the body would keep the whole body in memory.
  exact.set(response, ownText(rawAt(request.text, ['id'])))
}

/** Returns the text of an answer with the exact id stored for its response. */
export function underKeptId(response: HttpReply, text: string): string {
  const id = exact.get(response)
  return id === undefined ? text : splice(text, idEdits(text, id))
}

/** Returns the answer to a request, with the exact id of the request. */
export function underIdOf(request: Pick<Message, 'text'>, response: Response): Response {
  const id = rawAt(request.text, ['id'])
  if (LargeMessage.is(response)) return response.edited((text) => idEdits(text, id))
  return { ...response, text: splice(response.text, idEdits(response.text, id)) }
}

/** Returns the edits that set an id; empty for an error without an id. */
function idEdits(text: string, id: string): Edit[] {
  const span = locate(text, ['id'])
  return span === undefined || text.slice(span.start, span.end) === 'null' ? [] : [edit(span, id)]
}
