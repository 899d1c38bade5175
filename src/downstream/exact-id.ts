import type { ServerResponse } from 'node:http'
import type { Message, RequestId } from '../mesh/call.ts'
import { type Edit, edit, type JsonPath, locate, splice } from '../protocol/json-span.ts'
import { LargeMessage } from '../protocol/large-message.ts'
import { rawAt } from '../protocol/renumber.ts'
import { ownText } from '../units/recent.ts'
import type { Response } from './respond.ts'

/**
 * Ids that JavaScript rounds, such as integers above 2^53: parsed as numbers, several ids become equal, and none
 * returns unchanged. So their texts are kept and written into every answer.
 */

/** The original ids of requests, by HTTP response; only rounded ids. */
const exact = new WeakMap<ServerResponse, string>()

/** Whether an id is a number whose text may change when parsed. */
export function isRounded(id: unknown): boolean {
  return typeof id === 'number' && !Number.isSafeInteger(id)
}

/** Returns a key that tells the id at a path apart from other ids of its client. */
export function keyOf(id: RequestId, { text }: Pick<Message, 'text'>, path: JsonPath = ['id']): RequestId {
  return isRounded(id) ? `#${rawAt(text, path)}` : id
}

/** Makes a response use the exact id of its request. */
export function keepId(response: ServerResponse, request: Pick<Message, 'text'>): void {
  // A slice of the body would keep the whole body in memory.
  exact.set(response, ownText(rawAt(request.text, ['id'])))
}

/** Returns a text with the kept id, as the response sends it. */
export function underKeptId(response: ServerResponse, text: string): string {
  const id = exact.get(response)
  return id === undefined ? text : splice(text, idEdits(text, id))
}

/** Returns the answer to a request under its exact id. */
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
