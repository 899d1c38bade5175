import type { ServerResponse } from 'node:http'
import type { Message, RequestId } from '../mesh/call.ts'
import { type Edit, edit, type JsonPath, locate, splice } from '../protocol/json-span.ts'
import { LargeMessage } from '../protocol/large-message.ts'
import { rawAt } from '../protocol/renumber.ts'
import { ownText } from '../units/recent.ts'
import type { Response } from './respond.ts'

/**
 * Ids that JavaScript rounds, such as integers above 2^53: read as numbers, several of them become one, and none comes back as it was sent.
 * Their texts are kept instead, and written into all that answers them.
 */

/** The ids of requests that HTTP responses answer, as they were sent; only of those that are rounded. */
const exact = new WeakMap<ServerResponse, string>()

/** Whether an id is a number that its text may not survive as. */
export function isRounded(id: unknown): boolean {
  return typeof id === 'number' && !Number.isSafeInteger(id)
}

/** By what an id at a place of a message is told from other ids of its client. */
export function keyOf(id: RequestId, { text }: Pick<Message, 'text'>, path: JsonPath = ['id']): RequestId {
  return isRounded(id) ? `#${rawAt(text, path)}` : id
}

/** Has all that a response says go under the id of this request. */
export function keepId(response: ServerResponse, request: Pick<Message, 'text'>): void {
  // A part of the body would keep all of it.
  exact.set(response, ownText(rawAt(request.text, ['id'])))
}

/** A text as a response sends it. */
export function underKeptId(response: ServerResponse, text: string): string {
  const id = exact.get(response)
  return id === undefined ? text : splice(text, idEdits(text, id))
}

/** The answer to a request under its exact id. */
export function underIdOf(request: Pick<Message, 'text'>, response: Response): Response {
  const id = rawAt(request.text, ['id'])
  if (LargeMessage.is(response)) return response.edited((text) => idEdits(text, id))
  return { ...response, text: splice(response.text, idEdits(response.text, id)) }
}

/** An error may name no request. */
function idEdits(text: string, id: string): Edit[] {
  const span = locate(text, ['id'])
  return span === undefined || text.slice(span.start, span.end) === 'null' ? [] : [edit(span, id)]
}
