import type { ShapedAnswer, WireShape } from '../../mesh/wire-shape.ts'
import { derive, type Call, type Channel, type Layer, type Outcome } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import { gatewayError, isGatewayError } from '../../mesh/errors.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { errorText, METHOD_NOT_FOUND } from '../../protocol/jsonrpc.ts'
import { ENDED, type Injection, NO_REPLY, type Only, type RawReply, type Transport } from '../fault.ts'

/** The reason why a fault cannot change a reply to an agent any more. */
export const BEGUN = 'the agent has received a part of the reply already'

/**
 * Methods of all requests that the gateway sends to a server for an agent. Faults of connections hit all of these
 * methods.
 */
export const requests: readonly string[] = [
  'tools/call',
  'tools/list',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
]

/** Returns the outcome of a call whose signal has aborted. */
export function givenUp({ signal, record }: Call): Outcome {
  const { reason } = signal
  const error = isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
  return { kind: 'failed', error: { ...error, sent: record.sent } }
}

/** Resolves to the outcome of a call or, as soon as the call's signal aborts, to a failure. */
export function orGivenUp(outcome: Promise<Outcome>, call: Call): Promise<Outcome> {
  const { signal } = call
  return new Promise((resolve, reject) => {
    const aborted = () => resolve(givenUp(call))
    if (signal.aborted) return aborted()
    signal.addEventListener('abort', aborted, { once: true })
    outcome.finally(() => signal.removeEventListener('abort', aborted)).then(resolve, reject)
  })
}

/**
 * Returns a cancellation for a fault's own work in a call. An abort of the call also aborts this cancellation, until
 * `leave` is called.
 */
export function endOf({ signal }: Call): { readonly end: Cancellation; readonly leave: () => void } {
  const end = new Cancellation()
  const follow = () => end.abort(signal.reason)
  if (signal.aborted) follow()
  else signal.addEventListener('abort', follow, { once: true })
  return { end, leave: () => signal.removeEventListener('abort', follow) }
}

/** Resolves as soon as the promise has settled or any of the signals has aborted. */
export function firstOf(settled: Promise<unknown>, ...signals: readonly Signal[]): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      for (const signal of signals) signal.removeEventListener('abort', end)
      resolve()
    }
    if (signals.some(({ aborted }) => aborted)) return end()
    for (const signal of signals) signal.addEventListener('abort', end)
    settled.then(end, end)
  })
}

/** Returns a channel that uses the functions in `ways`, and passes everything else to `channel`. */
export function diverted(channel: Channel, ways: Partial<Pick<Channel, 'open' | 'pause' | 'send'>>): Channel {
  return {
    open: () => channel.open(),
    pause: (retryMs, askNow) => channel.pause(retryMs, askNow),
    send: (message, answer) => channel.send(message, answer),
    ...(channel.wire && { wire: channel.wire }),
    ...ways,
  }
}

/**
 * Only replies of Streamable HTTP have their own bytes; a stream shared by all calls cannot break for a single call.
 */
export const ownReplies: Only<Transport> = {
  only: ['http'],
  otherwise: 'the replies of all calls share one stream over {}; see conn.half_open and rpc.late',
}

/** Returns the call with an additional change to the bytes of the server's reply, applied after the earlier changes. */
export function shapedBy(call: Call, shape: WireShape): Call {
  return derive(call, { wire: { ...call.wire, shapes: [...(call.wire?.shapes ?? []), shape] } })
}

/** A fault's plan for the bytes of a reply. `nothing` returns the reason when the fault found nothing to do. */
interface WirePlan extends Pick<WireShape, 'pace' | 'incident'> {
  readonly nothing: (done: WireShape['done']) => string
}

/**
 * Returns a layer that changes the bytes of a reply. Upstream, the gateway reads these bytes from the server; on side
 * client, the agent gets these bytes.
 */
export function onTheWire({ nothing, ...plan }: WirePlan, injection: Injection): Layer {
  const { clock, released, side } = injection
  return (next) => (call) => {
    const done = { bytes: 0, messages: 0, hasHappened: false }
    const holds = (settled: Promise<void>) => void injection.delaying(call, settled)
    const shape: WireShape = { clock, released, ...plan, holds, done }
    if (side === 'client') {
      if (call.channel.wire?.shape === undefined) {
        injection.notApplicable('the reply has no bytes of its own')
        return next(call)
      }
      let isInTime: boolean | undefined
      const written = new Promise<void>((over) => (isInTime = call.channel.wire?.shape?.({ ...shape, over })))
      if (isInTime === false) {
        injection.notApplicable(BEGUN)
        return next(call)
      }
      injection.keepsPlace(written)
      return next(call).then((outcome) => towardsAgent(call, outcome, shape, injection, nothing))
    }
    return next(shapedBy(call, shape)).then((outcome) => {
      if (done.hasHappened) injection.note({ effect: shape.incident?.kind ?? 'trickle', bytes: done.bytes })
      else if (outcome.kind === 'answered' && !released.aborted) injection.notApplicable(nothing(done))
      else injection.notReached(outcome.kind === 'answered' ? ENDED : NO_REPLY)
      return outcome
    })
  }
}

/**
 * Journals the fault's effect on a reply to the agent before the reply is written. The size of the reply tells whether
 * the fault will act.
 */
function towardsAgent(
  { channel }: Call,
  outcome: Outcome,
  { incident, pace, done, released }: WireShape,
  injection: Injection,
  nothing: WirePlan['nothing'],
): Outcome {
  const isGone = outcome.kind !== 'answered' && outcome.error.reason === 'cancelled'
  if ((released.aborted || isGone) && !done.hasHappened) {
    injection.notReached(isGone ? 'the agent had given the call up' : ENDED)
    return outcome
  }
  // A reply with an error has at least the bytes of the error's own text.
  const text = outcome.kind === 'answered' ? outcome.result.text : JSON.stringify(outcome.error)
  const bytes = done.bytes + (isGone ? 0 : Buffer.byteLength(text) + (channel.wire?.framing ?? 0))
  const limit =
    pace?.bytes ?? (typeof incident?.at === 'object' && 'bytes' in incident.at ? incident.at.bytes : 0)
  if (bytes <= limit && !done.hasHappened) {
    injection.notApplicable(nothing({ ...done, bytes }))
    return outcome
  }
  const effect = incident?.kind ?? 'trickle'
  injection.note({ effect, bytes: incident === undefined ? bytes : Math.min(bytes, limit) })
  if (pace !== undefined) injection.delayed(Math.max(0, Math.ceil(bytes / pace.bytes) - 1) * pace.gapMs)
  if (incident?.kind === 'stall') injection.delayed(incident.stallMs ?? 0)
  const breaks = incident !== undefined && incident.kind !== 'stall'
  return breaks ? { ...outcome, wire: { ...outcome.wire, end: 'shape' } } : outcome
}

/** Returns whether the answers of all calls to its server share a stream. */
export function sharesStream(call: Call, { side, faultEnvironment }: Injection): boolean {
  return side === 'upstream' && faultEnvironment.kindOf(call)?.transport !== 'http'
}

/**
 * Returns a layer that changes the answer to a call on a stream that all calls share. `take` gets the text of the
 * answer when it arrives, and returns the replacement.
 */
export function onAnswer(take: (text: string, call: Call) => ShapedAnswer, injection: Injection): Layer {
  const { clock, released } = injection
  return (next) => (call) => {
    if (call.wire?.answer !== undefined) {
      injection.notApplicable('another fault already changes the answer to this call')
      return next(call)
    }
    let hasCome = false
    const answer = {
      clock,
      released,
      take(text: string) {
        hasCome = true
        return take(text, call)
      },
    }
    return next(derive(call, { wire: { ...call.wire, answer } })).then((outcome) => {
      if (hasCome) return outcome
      if (outcome.kind === 'answered' && !released.aborted)
        injection.notApplicable('the answer came in a JSON-RPC batch')
      else injection.notReached(outcome.kind === 'answered' ? ENDED : NO_REPLY)
      return outcome
    })
  }
}

/** Returns the outcome of a call when there is no server to connect to: no part of the call was sent. */
export function refuse(call: Call, injection: Injection): Outcome {
  const error = injection.faultEnvironment.unreachable(call)
  return injection.side === 'client' ? injection.disconnect(call, error.message) : { kind: 'failed', error }
}

/** The reason why a fault with an HTTP status cannot act. */
export const NO_STATUS = 'stdio has no HTTP status'

/** Returns whether the injection's side speaks HTTP; towards agents it always does. */
export function speaksHttp(call: Call, { side, faultEnvironment }: Injection): boolean {
  return side === 'client' || faultEnvironment.kindOf(call)?.transport !== 'stdio'
}

/** Returns a reply in JSON, with HTTP status 200 by default. */
export function json(body: string, status = 200): RawReply {
  return { status, headers: { 'content-type': 'application/json' }, body }
}

/** Returns the text of an error response; `id` is JSON text. */
export function errorBody(
  id: string,
  error: { readonly code: number; readonly message: string; readonly data?: unknown },
): string {
  return `{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}`
}

/** Returns a copy of a call with its own id. The agent gets no messages of the copy. */
export function copyOf(call: Call, number: number, signal: Signal): Call {
  const id = `${call.id}.${number}`
  const { text, value } = call.message
  return derive(call, {
    id,
    message: { text: replaceAt(text, ['id'], id), value: { ...value, id } },
    channel: nobody,
    signal,
    wire: undefined,
  })
}

/** A channel that drops all messages, and answers a server's questions with an error. */
const nobody: Channel = {
  open: () => undefined,
  pause: () => undefined,
  send(message, answer) {
    const { id } = message.value
    if (answer === undefined || (typeof id !== 'string' && typeof id !== 'number')) return undefined
    answer(errorText(id, METHOD_NOT_FOUND, 'Method not found')).catch(() => undefined)
    return undefined
  },
}
