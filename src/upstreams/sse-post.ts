import type { Dispatcher } from 'undici'
import type { GatewayError } from '../mesh/errors.ts'
import { abortError } from './failure.ts'
import { HttpReply, type ReplyHeaders, type ReplySink } from './http-reply.ts'
import type { HttpWire } from './http-wire.ts'
import type { Posting } from './pipe.ts'

/** What an acknowledgement may hold; nobody reads it. */
const ACK_LIMIT = 64 * 1024

/** How an acknowledgement ended, when it says that the message was not taken. */
export type Refused = (status: number, headers: ReplyHeaders, text: string) => GatewayError

/** The reply to a message that was posted: nothing but whether it was taken. */
class Acknowledgement extends HttpReply {
  readonly #posting: Posting

  constructor(sink: ReplySink, posting: Posting) {
    super(sink, ACK_LIMIT)
    this.#posting = posting
    posting.signal?.addEventListener('abort', this.#takeBack)
  }

  override onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#posting.signal?.removeEventListener('abort', this.#takeBack)
    if (!this.#posting.signal?.aborted) this.#posting.onWrite?.()
    super.onRequestStart(controller)
  }

  readonly #takeBack = (): void => this.abort(abortError(this.#posting.signal as AbortSignal))
}

/** Posts one message whose answer comes over the event stream. Rejects with a `GatewayError`. */
export function postMessage(wire: HttpWire, text: string, posting: Posting, refused: Refused): Promise<void> {
  return new Promise((resolve, reject) => {
    const sink: ReplySink = {
      opened: () => resolve(),
      event: () => undefined,
      body: (status, headers, body) => (status < 300 ? resolve() : reject(refused(status, headers, body))),
      ended: () => undefined,
      failed: reject,
    }
    wire.post(text, posting.headers, new Acknowledgement(sink, posting))
  })
}
