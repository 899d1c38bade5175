import { redactShapes } from '../../config/secrets/redact-text.ts'
import type { Message } from '../../mesh/call.ts'
import { verdictOf } from '../../mesh/classify.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { ownTurn, TurnBudget } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'
import { sizeFault } from '../../protocol/json-size.ts'
import { elements } from '../../protocol/json-span.ts'
import { isObject, kindOf, parseJson, paramsOf, resultText } from '../../protocol/jsonrpc.ts'
import { SUBSCRIPTION_ID_KEY } from '../../protocol/modern.ts'
import { failure } from '../failure.ts'
import { repliedId } from '../stdio/overlong.ts'
import type { Entry, InFlight } from './in-flight.ts'
import { LogThrottle } from '../../telemetry/log-throttle.ts'
import type { PipeEvents } from './pipe.ts'
import { progressToCaller, replyToCaller } from './renumber.ts'
import type { ServerRequests } from './server-requests.ts'
import type { Terms } from './terms.ts'

/** How many unreadable messages a second are logged, and how much of each, in characters. */
const NOISE_PER_SECOND = 5
const EXCERPT = 200

/** So much of both ends of a message that is not read is searched for its id, in characters. */
const ENDS = 512

/** Sorts what a server sends: answers to their calls, progress to its call, the rest to the audience. */
export class Inbox implements PipeEvents {
  readonly #calls: InFlight
  readonly #requests: ServerRequests
  readonly #terms: Terms
  readonly #noise: LogThrottle
  readonly closed: (error: GatewayError) => void

  constructor(
    calls: InFlight,
    requests: ServerRequests,
    terms: Terms,
    closed: (error: GatewayError) => void,
  ) {
    this.#calls = calls
    this.#requests = requests
    this.#terms = terms
    this.#noise = new LogThrottle(terms.clock, NOISE_PER_SECOND)
    this.closed = closed
  }

  message(text: string): Promise<void> | undefined {
    if (text.length < LARGE_TEXT) return this.#message(text)
    return ownTurn(this.#terms.server).then(() => during('reply', () => this.#large(text)))
  }

  #large(text: string): Promise<void> | undefined {
    const fault = sizeFault(text)
    if (fault === undefined) return this.#message(text)
    const ends = { head: text.slice(0, ENDS), tail: text.slice(-ENDS) }
    return this.#throwAway(repliedId(ends), gatewayError('bad_reply', fault, { sent: true }))
  }

  #message(text: string): Promise<void> | undefined {
    const value = parseJson(text)
    if (Array.isArray(value)) return this.#batch(text)
    if (!isObject(value)) return this.#unreadable(text)
    const message: Message = { text, value }
    switch (kindOf(value)) {
      case 'response':
        return this.#response(message)
      case 'request':
        return this.#request(message)
      case 'notification':
        return this.#notification(message)
      default:
        return this.#malformed(message)
    }
  }

  overlong(id: number | undefined, limit: number): void {
    const error = gatewayError('reply_too_large', `the reply is larger than ${limit} bytes`, { sent: true })
    this.#throwAway(id, error)
  }

  /** A message is not read; `id` is that of the request that it answers, as far as its ends show it. */
  #throwAway(id: number | undefined, error: GatewayError): undefined {
    const entry = this.#calls.get(id)
    this.#calls.finished(id)
    if (entry !== undefined) return void this.#calls.settle(entry, failure(entry.call, error))
    this.#noise.admit((dropped) =>
      this.#terms.log.warn({ why: error.message, dropped }, 'threw away a message that is too large'),
    )
  }

  /** Version 2025-03-26 has batches. Their messages are taken one after another. */
  async #batch(text: string): Promise<void> {
    const turns = new TurnBudget()
    for (const { start, end } of elements(text, text.indexOf('['))) {
      turns.begin()
      await this.message(text.slice(start, end))
      if (turns.spent(end - start)) await ownTurn(this.#terms.server)
    }
  }

  #response(message: Message): undefined {
    const entry = this.#calls.get(message.value.id)
    if (entry !== undefined) return void this.#answered(entry, message)
    const late = this.#calls.finished(message.value.id)
    // What it made is its caller's all the same.
    if (late?.caller !== undefined) this.#terms.audience.answered?.(late.method, late.caller, message)
    return this.#discard('an answer that nobody waits for', message)
  }

  #answered(entry: Entry, message: Message): void {
    const { audience } = this.#terms
    const { method, caller } = entry.call
    const theirs = audience.answered === undefined ? message : audience.answered(method, caller, message)
    const result = replyToCaller(entry.call, theirs)
    this.#calls.answer(entry, { kind: 'answered', result, verdict: verdictOf(result.value) })
  }

  #request(message: Message): Promise<void> | undefined {
    if (message.value.method !== 'ping') {
      return this.#requests.ask(message, this.#terms.audience.respondent(message, this.#calls))
    }
    this.#requests.answer(message, resultText(0, '{}'))
    return undefined
  }

  #notification(message: Message): Promise<void> | undefined {
    switch (message.value.method) {
      case 'notifications/progress':
        return this.#progress(message)
      case 'notifications/cancelled':
        return this.#requests.cancelled(message)
      default:
        return this.#told(message)
    }
  }

  /** In the modern era most of it names the subscription that it belongs to. */
  #told(message: Message): Promise<void> | undefined {
    const { _meta } = paramsOf(message.value)
    const id = isObject(_meta) ? _meta[SUBSCRIPTION_ID_KEY] : undefined
    const entry = id === undefined ? undefined : this.#calls.get(id)
    if (entry !== undefined) return this.#calls.through(entry, message)
    return this.#terms.audience.notify(message, this.#calls)
  }

  #progress(message: Message): Promise<void> | undefined {
    const entry = this.#calls.get(paramsOf(message.value).progressToken)
    const progress = entry && progressToCaller(entry.call, message)
    if (progress === undefined) return this.#discard('progress that nobody asked for', message)
    return this.#calls.through(entry as Entry, progress)
  }

  /** JSON, but no JSON-RPC: when it is meant as an answer, its caller need not wait any longer. */
  #malformed(message: Message): undefined {
    const entry = 'method' in message.value ? undefined : this.#calls.get(message.value.id)
    if (entry === undefined) return this.#unreadable(message.text)
    const error = gatewayError('bad_reply', 'the reply is no JSON-RPC response', { sent: true })
    this.#calls.settle(entry, failure(entry.call, error))
  }

  #unreadable(text: string): undefined {
    if (text.trim() === '') return
    this.#noise.admit((dropped) => {
      this.#terms.log.warn(
        { excerpt: redactShapes(text.slice(0, EXCERPT)), dropped },
        'skipped what is no JSON-RPC message',
      )
    })
  }

  #discard(what: string, { value }: Message): undefined {
    this.#terms.log.debug({ id: value.id, method: value.method }, `discarded ${what}`)
  }
}
