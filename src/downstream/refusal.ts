import { errorText, type RequestId } from '../protocol/jsonrpc.ts'
import { sendJson } from './post-reply.ts'
import type { Visit } from './visit.ts'

/** Why a request goes no further: an HTTP status, and the text of a JSON-RPC error. */
export interface Refusal {
  readonly status: number
  readonly text: string
}

/** `id` is null when the request has none that could be read. */
export function refusal(
  status: number,
  id: RequestId | null,
  code: number,
  message: string,
  data?: unknown,
): Refusal {
  return { status, text: errorText(id, code, message, data) }
}

/** Answers a request with its refusal: there is nothing more to wait for. */
export function refuse({ response }: Visit, { status, text }: Refusal): undefined {
  sendJson(response, status, text)
}
