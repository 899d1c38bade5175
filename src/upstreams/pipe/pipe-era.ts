import type { Signal } from '../../mesh/cancel.ts'
import type { Call, Message, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { Discover } from '../modern/discover.ts'
import { isOtherEra } from '../era.ts'
import { handshake } from './handshake.ts'
import { metaOf, withMeta } from '../modern/modern-request.ts'
import { ownCall } from '../own-call.ts'
import type { Terms } from './terms.ts'

/** A server that says nothing for so long does not know the question, in milliseconds. */
const SILENCE_MS: Millis = 2_000

/** How long an answer may take where nobody who waits for it gives up earlier, in milliseconds: a process may be starting. */
const LONGEST_ANSWER_MS: Millis = 120_000

/** What a server said of itself. */
export interface Greeted {
  readonly greeting: Message
  /** Asks it again; only in the modern era. */
  readonly discover: Discover | undefined
}

type Exchange = (call: Call) => Promise<Outcome>

/** Begins a conversation over a pipe in the era of the server. Rejects with a `GatewayError`. */
export async function greet(exchange: Exchange, terms: Terms, signal: Signal): Promise<Greeted> {
  const { era = 'legacy', server, hello } = terms
  if (era === 'legacy') {
    return { greeting: await handshake(exchange, server, hello, signal), discover: undefined }
  }
  const probe = new Probe(exchange, terms, signal)
  try {
    return await (era === 'modern' ? probe.greeted : findOut(probe, exchange, terms, signal))
  } finally {
    probe.end()
  }
}

/** Asks for the modern era first. A server that is silent may be slow, so its answer still counts later. */
async function findOut(probe: Probe, exchange: Exchange, terms: Terms, signal: Signal): Promise<Greeted> {
  const early = await probe.within(SILENCE_MS)
  if (early !== undefined) return early
  return greet(exchange, { ...terms, era: 'legacy' }, signal).catch((error: unknown) => {
    if (probe.known === undefined) throw error
    return probe.known
  })
}

/** The question whether a server is of the modern era. */
class Probe {
  readonly greeted: Promise<Greeted>
  /** The answer, once it is there and says so. */
  known: Greeted | undefined
  readonly #terms: Terms
  readonly #signal: Signal
  readonly #discover: Discover
  readonly #over = new AbortController()
  readonly #aborted = () => this.#over.abort(this.#signal.reason)

  constructor(exchange: Exchange, terms: Terms, signal: Signal) {
    this.#terms = terms
    this.#signal = signal
    signal.addEventListener('abort', this.#aborted)
    const { clock } = terms
    const options = { clock, answerMs: LONGEST_ANSWER_MS, patienceMs: Infinity }
    this.#discover = new Discover((asking) => ask(exchange, terms, asking), options)
    const discover = this.#discover
    this.greeted = discover.greeting(this.#over.signal).then((greeting) => ({ greeting, discover }))
    this.greeted.then(
      (greeted) => (this.known = greeted),
      () => undefined,
    )
  }

  /** The answer, if it comes within `ms` and is that of a modern server. */
  within(ms: Millis): Promise<Greeted | undefined> {
    return new Promise((resolve, reject) => {
      const cancel = this.#terms.clock.after(ms, () => resolve(undefined))
      this.greeted
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

async function ask(exchange: Exchange, { server, hello }: Terms, signal: Signal): Promise<Message> {
  const call = ownCall(server, 'server/discover', {}, signal)
  const text = withMeta(call.message.text, metaOf(hello))
  const outcome = await exchange({ ...call, message: { ...call.message, text } })
  if (outcome.kind !== 'answered') throw outcome.error
  return outcome.result
}
