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

/** Returns the error for calls that waited for a session which could not be opened: these calls were not sent. */
export function openError(cause: unknown): GatewayError {
  if (!isGatewayError(cause)) return gatewayError('internal', 'the upstream session could not be opened')
  const { message, retryAfterMs, cause: failed, injected } = cause
  if (cause.reason === 'upstream_disconnected') {
    const error = gatewayError('upstream_unavailable', message, { retryAfterMs, cause: failed })
    return injected === undefined ? error : { ...error, injected }
  }
  return { ...cause, sent: false }
}

/** A server that stays silent for this long, in milliseconds, probably does not know `server/discover`. */
const SILENCE_MS: Millis = 2_000

/**
 * The probe has no time limit of its own, in milliseconds: a process may be starting, and the opener of the session
 * limits the start.
 */
const LONGEST_ANSWER_MS = LONGEST_TIMER_MS

/** The server's self-description. */
export interface Initialized {
  readonly initializeResult: Message
  /** Asks the server again; only in the modern era. */
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

/**
 * Tries the modern era, then the legacy era. A silent server may be slow, so a late answer to the first question still
 * counts.
 */
async function findOut(probe: Probe, send: Service, terms: Terms, signal: Signal): Promise<Initialized> {
  const early = await probe.within(SILENCE_MS)
  if (early !== undefined) return early
  try {
    return await greet(send, { ...terms, era: 'legacy' }, signal)
  } catch (error) {
    if (!isGatewayError(error) || !isOtherEra(error)) throw error
    // A server that starts slowly reads both requests at once and may answer in any order, so the modern answer may
    // come next.
    const late = await probe.within(SILENCE_MS).catch(() => undefined)
    if (late === undefined) throw error
    return late
  }
}

/** Asks a server whether it is modern. */
class Probe {
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
    // Prevents an unhandled rejection; users of `initialized` still get the failure.
    this.initialized.catch(() => undefined)
  }

  /** Resolves to the answer of a modern server; undefined after `ms`, or if the server is not modern. */
  within(ms: Millis): Promise<Initialized | undefined> {
    return new Promise((resolve, reject) => {
      const cancel = this.#terms.clock.after(ms, () => resolve(undefined))
      this.initialized
        .finally(cancel)
        .then(resolve, (error: GatewayError) => (isOtherEra(error) ? resolve(undefined) : reject(error)))
    })
  }

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
