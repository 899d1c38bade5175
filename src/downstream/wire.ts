import type { ServerResponse } from 'node:http'
import type { WireReply } from '../mesh/call.ts'

/** Puts a reply on the agent's wire as a fault wants it there: another status, bytes that are no JSON-RPC, no reply at all. */
export function putOnWire(
  response: ServerResponse,
  { status = 200, headers = {}, body = '', end }: WireReply,
): void {
  if (response.destroyed || response.writableEnded) return
  if (end === 'reset') {
    response.req.socket.resetAndDestroy()
    return
  }
  if (!response.headersSent) {
    const { 'content-length': _, ...rest } = headers
    response.writeHead(status, { ...rest, 'content-length': Buffer.byteLength(body) })
  }
  response.end(body)
}
