import type { Signal } from '../../mesh/cancel.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import { abortError } from '../failure.ts'
import type { ReplyHeaders } from '../http/http-headers.ts'
import { HttpReply, type ReplySink } from '../http/http-reply.ts'
import type { HttpWire } from '../http/http-wire.ts'
import type { Posting } from '../pipe/pipe.ts'

/** What an acknowledgement may hold; nobody reads it. */
const ACK_LIMIT = 64 * 1024

/** How an acknowledgement ended, when it says that the message was not taken. */
export type Refused = (
  status: number,
  headers: ReplyHeaders,
  text: string,
) => GatewayError | Promise<GatewayError>

/** Posts one message whose answer comes over the event stream. Rejects with a `GatewayError`. */
export function postMessage(wire: HttpWire, text: string, posting: Posting, refused: Refused): Promise<void> {
  const { signal, onWrite, headers } = posting
  return new Promise((resolve, reject) => {
    const takeBack = () => reply.abort(abortError(signal as Signal))
    const sink: ReplySink = {
      started() {
        signal?.removeEventListener('abort', takeBack)
        onWrite?.()
      },
      opened: () => resolve(),
      event: () => undefined,
      body(status, head, body) {
        if (status < 300) resolve()
        else void Promise.resolve(refused(status, head, body)).then(reject)
      },
      ended: () => undefined,
      failed: reject,
    }
    const reply = new HttpReply(sink, { maxReply: ACK_LIMIT })
    signal?.addEventListener('abort', takeBack)
    wire.post(text, headers, reply)
  })
}
