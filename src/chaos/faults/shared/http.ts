import type { Call } from '../../../mesh/call.ts'
import type { RawReply, Shot } from '../../fault.ts'

/** Why a fault that is a status cannot work. */
export const NO_STATUS = 'stdio has no HTTP status'

/** Whether there is HTTP where the shot goes; towards agents it always is. */
export function speaksHttp(call: Call, { side, world }: Shot): boolean {
  return side === 'client' || world.kindOf(call)?.transport !== 'stdio'
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
