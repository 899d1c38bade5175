import type { Answer, Message } from '../../mesh/call.ts'
import { ignore, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { requestText, resultText } from '../../protocol/jsonrpc.ts'
import { abortError } from '../failure.ts'
import { HttpReply } from './http-reply.ts'
import type { HttpWire } from './http-wire.ts'
import { answerableId, withRawId } from '../../protocol/renumber.ts'

/** Largest acknowledgement, in bytes; nobody reads acknowledgements. */
const ACK_LIMIT = 64 * 1024

/** Returns a reply handler that reports only the status. Drops an event stream, and reports it as status 200. */
function statusOnly(done: (status: number) => void, failed: (error: GatewayError) => void): HttpReply {
  const reply = new HttpReply(
    {
      opened() {
        done(200)
        reply.abort(gatewayError('cancelled', 'only the status was wanted'))
      },
      event: () => undefined,
      body: done,
      ended: () => undefined,
      failed,
    },
    { maxReply: ACK_LIMIT },
  )
  return reply
}

export interface PostOptions {
  readonly clock: Clock
  /** How long the server may take to acknowledge, in milliseconds. */
  readonly limitMs: Millis
  /** Headers of the agent for this message. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Cancels the post; with `leavesSent`, only before it is sent. */
  readonly signal?: Signal | undefined
  readonly leavesSent?: boolean
  /** The sender, if no call may wait for this message; otherwise undefined. See `OneWayPosts`. */
  readonly sender?: object | undefined
}

/** Posts a message without a reply. Resolves on acceptance; rejects with a `GatewayError`, also after `limitMs`. */
export function postAway(
  wire: HttpWire,
  text: string,
  { clock, limitMs, headers, signal, leavesSent = false, sender }: PostOptions,
): Promise<void> {
  return new Promise((resolve, reject) => {
    // Rejects at once: undici reports the end of a waiting request only when the request gets a socket.
    const giveUp = (error: GatewayError) => {
      failed(error)
      reply.abort(error)
    }
    const aborted = () => {
      if (!leavesSent || !reply.sent) giveUp(abortError(signal as Signal))
    }
    let leave: (() => void) | undefined
    let isSettled = false
    const settled = () => {
      if (isSettled) return
      isSettled = true
      cancel()
      signal?.removeEventListener('abort', aborted)
      leave?.()
    }
    const done = (code: number) => {
      settled()
      if (code < 300) resolve()
      else reject(gatewayError('upstream_refused', `the server answered HTTP ${code}`, { sent: true }))
    }
    const failed = (error: GatewayError) => {
      settled()
      reject(error)
    }
    const reply = statusOnly(done, failed)
    const cancel = clock.after(limitMs, () => {
      const message = `the server did not take a message within ${limitMs} ms`
      giveUp(gatewayError('attempt_timeout', message, { sent: true }))
    })
    if (signal?.aborted) return aborted()
    signal?.addEventListener('abort', aborted)
    if (sender === undefined) return wire.post(text, headers, reply)
    try {
      leave = wire.postOneWay(sender, text, headers, reply)
    } catch (error) {
      return failed(error as GatewayError)
    }
    // The post failed before it began.
    if (isSettled) leave()
  })
}

/** The status of a healthy server that does not implement the method. */
const NOT_IMPLEMENTED = 501

/**
 * Resolves to whether a server takes requests. Sends a ping outside of any session; a refusal of the ping also proves
 * that the server is there. Only a 5xx status other than 501, or a failed connection, counts as absent.
 */
export function isThere(wire: HttpWire, signal: Signal): Promise<boolean> {
  return new Promise((resolve) => {
    const done = (code: number) => {
      signal.removeEventListener('abort', aborted)
      resolve(code < 500 || code === NOT_IMPLEMENTED)
    }
    const reply = statusOnly(done, () => done(503))
    const aborted = () => {
      done(503)
      reply.abort(abortError(signal))
    }
    signal.addEventListener('abort', aborted)
    // Uses no socket for calls: the server may be there although all these sockets are busy.
    wire.subscribe(requestText('breakwater:ping', 'ping'), {}, reply)
  })
}

/**
 * Returns a function that answers a server's request under the server's id. Undefined for a request whose id is too
 * long to keep, and for a ping, which is answered here.
 */
export function answerTo(request: Message, post: (text: string) => Promise<void>): Answer | undefined {
  const id = answerableId(request)
  if (id === undefined) return undefined
  const answer = (text: string) => post(withRawId(text, id))
  if (request.value.method !== 'ping') return answer
  // A failure is ignored: the server is gone or accepts nothing.
  void answer(resultText(0, '{}')).catch(ignore)
  return undefined
}

/** Ends the session at the server, within `limitMs` if possible. Never rejects. */
export function leave(wire: HttpWire, clock: Clock, limitMs: Millis): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      cancel()
      resolve()
    }
    const reply = statusOnly(settle, settle)
    const cancel = clock.after(limitMs, () => {
      settle()
      reply.abort(gatewayError('cancelled', 'the server took too long to end the session'))
    })
    wire.leave(reply)
  })
}
