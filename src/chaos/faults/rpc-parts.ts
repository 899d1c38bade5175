import type { Call } from '../../mesh/call.ts'
import { locate, splice } from '../../protocol/json-span.ts'
import type { RawReply } from '../fault.ts'

/** The call's id as its sender wrote it: numbers that JavaScript would round keep all of their digits. */
export function rawId({ id, message: { text } }: Call): string {
  const span = locate(text, ['id'])
  return span === undefined ? JSON.stringify(id) : text.slice(span.start, span.end)
}

/** The text of a reply under another id, which is given as JSON text. */
export function withId(text: string, id: string): string {
  const span = locate(text, ['id'])
  return span === undefined ? text : splice(text, [{ ...span, with: id }])
}

/** A reply in JSON, with HTTP status 200 unless told otherwise. */
export function json(body: string, status = 200): RawReply {
  return { status, headers: { 'content-type': 'application/json' }, body }
}

/** The text of an error response; `id` is JSON text. */
export function errorBody(
  id: string,
  error: { readonly code: number; readonly message: string; readonly data?: unknown },
): string {
  return `{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}`
}

/** Why a fault that breaks a reply found nothing to do. */
export const NO_REPLY = 'the call failed by itself: there is no reply'
