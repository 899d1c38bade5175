import type { Call, Caller, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { resultOf } from '../../mesh/classify.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { paramsOf, readMessage, resultText } from '../../protocol/jsonrpc.ts'
import { failure, whenAborted } from '../failure.ts'
import type { ModernLink } from '../modern/modern-link.ts'
import { modernSeat, type SeatTerms } from '../modern/modern-seat.ts'
import { ownCall } from '../own-call.ts'
import { MessageLink } from '../pipe/message-link.ts'
import type { Connect } from '../pipe/pipe.ts'
import { replyToCaller } from '../pipe/renumber.ts'
import type { Terms } from '../pipe/terms.ts'
import type { Era, Link } from '../upstream.ts'
import { SharedAudience } from './shared-audience.ts'

/**
 * What a shared process is told of its clients. They have no roots: what one client opens to a server would
 * be open to all.
 */
const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } }

type SharedTerms = Omit<Terms, 'audience' | 'shared'> & SeatTerms

/** One conversation that many callers take part in, and that outlives each of them. */
export class SharedLink {
  readonly #link: MessageLink
  readonly #terms: SeatTerms
  readonly #audience: SharedAudience
  readonly #seats = new Set<Seat | ModernLink>()

  /** Rejects with a `GatewayError`, and leaves nothing behind then. */
  static async open(connect: Connect, terms: SharedTerms, signal: Signal): Promise<SharedLink> {
    const audience = new SharedAudience(terms.server, terms.clock)
    const hello = { ...terms.hello, capabilities }
    const link = await MessageLink.open(connect, { ...terms, hello, audience, shared: true }, signal)
    return new SharedLink(link, terms, audience)
  }

  private constructor(link: MessageLink, terms: SeatTerms, audience: SharedAudience) {
    this.#link = link
    this.#terms = terms
    this.#audience = audience
    whenAborted(link.ended, (error) => {
      audience.close()
      for (const seat of this.#seats) seat.end(error)
    })
  }

  get era(): Era {
    return this.#link.era
  }

  get ended(): AbortSignal {
    return this.#link.ended
  }

  /** Lets a caller take part. It may leave and come back, but not be here twice. */
  attach(caller: Caller): Link {
    const seat = this.#seatFor(caller)
    this.#seats.add(seat)
    whenAborted(seat.ended, () => this.#seats.delete(seat))
    return seat
  }

  #seatFor(caller: Caller): Seat | ModernLink {
    const { discover } = this.#link
    return discover === undefined
      ? new Seat(this.#link, this.#audience, caller)
      : modernSeat(this.#link, discover, this.#terms, caller)
  }

  close(): Promise<void> {
    return this.#link.close()
  }
}

/** One caller's part in a conversation that it shares with others. Closing it ends nothing for them. */
class Seat implements Link {
  readonly keepsState = true
  readonly #link: MessageLink
  readonly #audience: SharedAudience
  readonly #caller: Caller
  readonly #end = new AbortController()

  constructor(link: MessageLink, audience: SharedAudience, caller: Caller) {
    this.#link = link
    this.#audience = audience
    this.#caller = caller
    audience.callers.add(caller)
  }

  get greeting() {
    return this.#link.greeting
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted) return Promise.resolve(failure(call, this.ended.reason as GatewayError))
    switch (call.method) {
      case 'resources/subscribe':
        return this.#subscribe(call)
      case 'resources/unsubscribe':
        return this.#unsubscribe(call)
      case 'logging/setLevel':
        return this.#setLevel(call)
      default:
        return this.#link.exchange(call)
    }
  }

  async post(text: string): Promise<void> {
    if (this.ended.aborted) throw this.ended.reason
    // The process was told that there are no roots.
    if (readMessage(text)?.value.method === 'notifications/roots/list_changed') return
    await this.#link.post(text, this.#caller)
  }

  /** Does nothing: whoever takes part gets everything that is meant for it. */
  listen(): void {}

  close(): Promise<void> {
    if (!this.ended.aborted) this.#leave(gatewayError('cancelled', 'the conversation was closed'))
    return Promise.resolve()
  }

  /** The conversation is over for everybody. */
  end(error: GatewayError): void {
    this.#end.abort(error)
  }

  #leave(error: GatewayError): void {
    const { callers, levels, subscriptions } = this.#audience
    this.end(error)
    callers.delete(this.#caller)
    this.#link.abandon(this.#caller, error)
    for (const uri of subscriptions.release(this.#caller)) this.#tell('resources/unsubscribe', { uri })
    const before = levels.effective
    levels.forget(this.#caller)
    const level = levels.effective
    if (level !== undefined && level !== before) this.#tell('logging/setLevel', { level })
  }

  /** A request that nobody waits for. */
  #tell(method: string, params: Readonly<Record<string, unknown>>): void {
    void this.#link.exchange(ownCall(this.#caller.id, method, params, new AbortController().signal))
  }

  #subscribe(call: Call): Promise<Outcome> {
    const { uri } = paramsOf(call.message.value)
    if (typeof uri !== 'string') return this.#link.exchange(call)
    return this.#orUndo(this.#audience.subscriptions.add(uri, this.#caller), call)
  }

  #unsubscribe(call: Call): Promise<Outcome> {
    const { uri } = paramsOf(call.message.value)
    const needed = typeof uri === 'string' && this.#audience.subscriptions.remove(uri, this.#caller)
    return needed ? Promise.resolve(emptyAnswer(call)) : this.#link.exchange(call)
  }

  /** The process gets the most verbose level that anybody wants; what is too much for a caller is held back. */
  #setLevel(call: Call): Promise<Outcome> {
    const { levels } = this.#audience
    const undo = levels.ask(this.#caller, paramsOf(call.message.value).level)
    return undo === undefined
      ? this.#link.exchange(call)
      : this.#orUndo(undo, withLevel(call, levels.effective))
  }

  async #orUndo(undo: () => void, call: Call): Promise<Outcome> {
    const outcome = await this.#link.exchange(call)
    if (resultOf(outcome) !== 'returned') undo()
    return outcome
  }
}

function withLevel(call: Call, level: string | undefined): Call {
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'level'], level),
    value: { ...value, params: { ...paramsOf(value), level } },
  }
  return { ...call, message }
}

function emptyAnswer(call: Call): Outcome {
  const reply = { text: resultText(0, '{}'), value: { jsonrpc: '2.0', id: 0, result: {} } }
  return { kind: 'answered', result: replyToCaller(call, reply), verdict: 'unchecked' }
}
