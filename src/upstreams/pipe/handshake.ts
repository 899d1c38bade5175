import type { Message, Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { LONGEST_TIMER_MS, type Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError, isGatewayError } from '../../mesh/errors.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { isOtherEra } from '../era.ts'
import { assertLegacy, initializeResultOf, refusedBy, ownCall } from '../own-call.ts'
import { Discover } from '../modern/discover.ts'
import { metaOf, withMeta } from '../modern/modern-request.ts'
import { rawAt } from '../../protocol/renumber.ts'
import type { Terms } from './pipe.ts'

/** Sends `initialize`; resolves to its result. Rejects with a `GatewayError`. */
async function handshake(
  send: Service,
  { server, initializeParams, conceal }: Terms,
  signal: Signal,
): Promise<Message> {
  const outcome = await send(ownCall(server, 'initialize', initializeParams, signal))
  if (outcome.kind !== 'answered') throw outcome.error
  const { text, value } = outcome.result
  if (isObject(value.error)) throw refusedBy('the server refused to initialize', value.error, conceal)
  if (!isObject(value.result)) throw gatewayError('bad_reply', 'initialize has no result', { sent: true })
  assertLegacy(value.result, conceal)
  return initializeResultOf(rawAt(text, ['result']), value.result)
}

/** Returns the error for the calls that waited for a failed opening: no such call was sent. */
export function openError(cause: unknown): GatewayError {
  if (!isGatewayError(cause)) return gatewayError('internal', 'the upstream session could not be opened')
  const { message, retryAfterMs, cause: failed, injected } = cause
  if (cause.reason === 'upstream_disconnected') {
    const error = gatewayError('upstream_unavailable', message, { retryAfterMs, cause: failed })
    return injected === undefined ? error : { ...error, injected }
  }
  return { ...cause, sent: false }
}

/** A server that says nothing for so long does not know the question, in milliseconds. */
const SILENCE_MS: Millis = 2_000

/** No limit of its own, in milliseconds: a process may be starting, and whoever opens the upstream session bounds that. */
const LONGEST_ANSWER_MS = LONGEST_TIMER_MS

/** The server's account of itself. */
export interface Initialized {
  readonly initializeResult: Message
  /** Asks it again; only in the modern era. */
  readonly discover: Discover | undefined
}

/** Begins an upstream session over a pipe in the era of the server. Rejects with a `GatewayError`. */
export async function greet(send: Service, terms: Terms, signal: Signal): Promise<Initialized> {
  const { era = 'legacy' } = terms
  if (era === 'legacy') {
    return {
      initializeResult: await handshake(send, terms, signal),
      discover: undefined,
    }
  }
  const probe = new Probe(send, terms, signal)
  try {
    return await (era === 'modern' ? probe.initialized : findOut(probe, send, terms, signal))
  } finally {
    probe.end()
  }
}

/** Asks for the modern era first. A server that is silent may be slow, so its answer still counts later. */
async function findOut(probe: Probe, send: Service, terms: Terms, signal: Signal): Promise<Initialized> {
  const early = await probe.within(SILENCE_MS)
  if (early !== undefined) return early
  try {
    return await greet(send, { ...terms, era: 'legacy' }, signal)
  } catch (error) {
    if (!isGatewayError(error) || !isOtherEra(error)) throw error
    // One that takes long to start reads both questions then, and its two answers come at once, in any order.
    const late = await probe.within(SILENCE_MS).catch(() => undefined)
    if (late === undefined) throw error
    return late
  }
}

/** The question whether a server is of the modern era. */
class Probe {
  /** The answer, if it says so. */
  readonly initialized: Promise<Initialized>
  readonly #terms: Terms
  readonly #signal: Signal
  readonly #discover: Discover
  readonly #over = new AbortController()
  readonly #aborted = () => this.#over.abort(this.#signal.reason)

  constructor(send: Service, terms: Terms, signal: Signal) {
    this.#terms = terms
    this.#signal = signal
    signal.addEventListener('abort', this.#aborted)
    const { clock, conceal } = terms
    const options = { clock, conceal, answerMs: LONGEST_ANSWER_MS, patienceMs: Infinity }
    this.#discover = new Discover((asking) => ask(send, terms, asking), options)
    const discover = this.#discover
    this.initialized = discover
      .initializeResult(this.#over.signal)
      .then((initializeResult) => ({ initializeResult, discover }))
    // A failure is no unhandled rejection; later callers still get the failure.
    this.initialized.catch(() => undefined)
  }

  /** The answer, if it comes within `ms` and is that of a modern server. */
  within(ms: Millis): Promise<Initialized | undefined> {
    return new Promise((resolve, reject) => {
      const cancel = this.#terms.clock.after(ms, () => resolve(undefined))
      this.initialized
        .finally(cancel)
        .then(resolve, (error: GatewayError) => (isOtherEra(error) ? resolve(undefined) : reject(error)))
    })
  }

  /** No answer is waited for any more. */
  end(): void {
    this.#signal.removeEventListener('abort', this.#aborted)
    const over = gatewayError('cancelled', 'the question is not needed any more')
    this.#over.abort(over)
    this.#discover.abort(over)
  }
}

async function ask(send: Service, { server, initializeParams }: Terms, signal: Signal): Promise<Message> {
  const call = ownCall(server, 'server/discover', {}, signal)
  const text = withMeta(call.message.text, metaOf(initializeParams))
  const outcome = await send({ ...call, message: { ...call.message, text } })
  if (outcome.kind !== 'answered') throw outcome.error
  return outcome.result
}
