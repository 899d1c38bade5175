import type { Answer, Message } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { HttpReply, type ReplySink } from './http-reply.ts'
import type { HttpWire } from './http-wire.ts'
import { rawAt, withRawId } from '../pipe/renumber.ts'

/** What an acknowledgement may hold; nobody reads it. */
const ACK_LIMIT = 64 * 1024

/** A sink that only wants to know how the request ended. */
function status(done: (status: number) => void, failed: (error: GatewayError) => void): ReplySink {
  return {
    opened: () => done(200),
    event: () => undefined,
    body: done,
    ended: () => undefined,
    failed,
  }
}

/**
 * Posts a message that has no reply; `own` are headers of the agent that go with it. Resolves once the server took
 * it; rejects with a `GatewayError`.
 */
export function postAway(
  wire: HttpWire,
  text: string,
  own?: Readonly<Record<string, string>>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (code: number) => {
      if (code < 300) resolve()
      else reject(gatewayError('upstream_refused', `the server answered HTTP ${code}`, { sent: true }))
    }
    wire.post(text, own, new HttpReply(status(done, reject), ACK_LIMIT))
  })
}

/** The way back for the answer to a request of the server: under the id that the server gave it. */
export function answerTo(request: Message, post: (text: string) => Promise<void>): Answer {
  return (text) => post(withRawId(text, rawAt(request.text, ['id'])))
}

/** Ends the session at the server, as far as it goes within `limitMs`. Never rejects. */
export function leave(wire: HttpWire, clock: Clock, limitMs: Millis): Promise<void> {
  return new Promise((resolve) => {
    const reply = new HttpReply(
      status(
        () => settle(),
        () => settle(),
      ),
      ACK_LIMIT,
    )
    const cancel = clock.after(limitMs, () =>
      reply.abort(gatewayError('cancelled', 'the goodbye took too long')),
    )
    const settle = () => {
      cancel()
      resolve()
    }
    wire.leave(reply)
  })
}
