import type { Answer, Message } from '../../mesh/call.ts'
import { ignore, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { requestText, resultText } from '../../protocol/jsonrpc.ts'
import { abortError } from '../failure.ts'
import { HttpReply } from './http-reply.ts'
import type { HttpWire } from './http-wire.ts'
import { answerableId, withRawId } from '../../protocol/renumber.ts'

/** Largest acknowledgement, in bytes; nobody reads an acknowledgement. */
const ACK_LIMIT = 64 * 1024

/** A reply of which only the status matters. A stream of events is not listened to. */
function statusOnly(done: (status: number) => void, failed: (error: GatewayError) => void): HttpReply {
  const reply = new HttpReply(
    {
      opened() {
        done(200)
        reply.abort(gatewayError('cancelled', 'the status was all that was wanted'))
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
  /** How long the server may take to acknowledge it, in milliseconds. */
  readonly limitMs: Millis
  /** Headers of the agent that go with it. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Takes it back; with `leavesSent` only as long as it waits for its turn. */
  readonly signal?: Signal | undefined
  readonly leavesSent?: boolean
  /** The sender of a message that no call may wait for; undefined for any other message. See `OneWayPosts`. */
  readonly sender?: object | undefined
}

/**
 * Posts a message that has no reply. Resolves once the server took it; rejects with a `GatewayError`, also when that
 * takes longer than `limitMs`.
 */
export function postAway(
  wire: HttpWire,
  text: string,
  { clock, limitMs, headers, signal, leavesSent = false, sender }: PostOptions,
): Promise<void> {
  return new Promise((resolve, reject) => {
    // The waiting caller is told at once: a request without a socket ends only when it gets a socket.
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
    // It failed before it was on its way.
    if (isSettled) leave()
  })
}

/** The status of a server that knows no such method, and is in no trouble. */
const NOT_IMPLEMENTED = 501

/**
 * Whether a server takes requests: asks by a ping outside of any session, which it may refuse as it likes. Only a server
 * that says itself that it is in trouble (5xx), or no server at all, is not there.
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
    // Not over the sockets for calls: when all of them are busy the server is there.
    wire.subscribe(requestText('breakwater:ping', 'ping'), {}, reply)
  })
}

/**
 * The way back for the answer to a request of the server: under the id that the server gave it. Undefined for a request
 * that cannot be answered, and for a ping: whoever is pinged answers it, which is this end of the upstream session.
 */
export function answerTo(request: Message, post: (text: string) => Promise<void>): Answer | undefined {
  const id = answerableId(request)
  if (id === undefined) return undefined
  const answer = (text: string) => post(withRawId(text, id))
  if (request.value.method !== 'ping') return answer
  // The server is gone, or takes nothing: it has no answer then.
  void answer(resultText(0, '{}')).catch(ignore)
  return undefined
}

/** Ends the session at the server, as far as it goes within `limitMs`. Never rejects. */
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
