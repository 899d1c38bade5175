import type { Signal } from '../../mesh/cancel.ts'
import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { kindOf, notificationText, readMessage } from '../../protocol/jsonrpc.ts'
import { abortError, failure, orAborted } from '../failure.ts'
import type { Discover } from '../modern/discover.ts'
import { MAX_BACKLOG_BYTES, MAX_BACKLOG_MESSAGES } from './backlog.ts'
import { openError } from './handshake.ts'
import { Inbox } from './inbox.ts'
import { InFlight, type Entry } from './in-flight.ts'
import { greet, type Greeted } from './pipe-era.ts'
import type { Connect, Pipe, Posting } from './pipe.ts'
import { toServer } from './renumber.ts'
import { ServerRequests } from './server-requests.ts'
import type { Terms } from './terms.ts'
import type { Era, Link } from '../upstream.ts'

/** How many notifications may wait until the server reads them; calls are limited elsewhere. */
const MAX_UNREAD = 1_024

/** How long a server may take to take `notifications/initialized`, in milliseconds: some never acknowledge it. */
const INITIALIZED_MS = 1_000

/** Notifications that only the gateway itself may send: the handshake is its own, and so are request ids. */
const ours: ReadonlySet<unknown> = new Set(['notifications/initialized', 'notifications/cancelled'])

/** Requests that a server is not told the end of: before the first answer it may not understand it. */
const greetings: ReadonlySet<string> = new Set(['initialize', 'server/discover'])

/** The end of a call whose caller does not read, where others are not to wait for that. */
const readsTooSlowly = gatewayError(
  'overloaded',
  `the client reads too slowly what the server sends before the answer (more than ${MAX_BACKLOG_BYTES} bytes or ${MAX_BACKLOG_MESSAGES} messages wait for it)`,
  { sent: true },
)

/** A conversation over a pipe of JSON texts. Requests travel under ids and progress tokens of our own. */
export class MessageLink implements Link {
  readonly keepsState = true
  readonly #terms: Terms
  readonly #calls: InFlight
  readonly #requests = new ServerRequests((text) => this.#send(text))
  readonly #end = new AbortController()
  #pipe: Pipe | undefined
  #greeted!: Greeted
  #unread = 0

  /** Connects and shakes hands. Rejects with a `GatewayError`, and leaves nothing behind then. */
  static async open(connect: Connect, terms: Terms, signal: Signal): Promise<MessageLink> {
    if (signal.aborted) throw abortError(signal)
    const link = new MessageLink(terms)
    const inbox = new Inbox(link.#calls, link.#requests, terms, (error) => link.#over(error))
    try {
      link.#pipe = await connect(inbox, signal)
      await link.#greet(signal)
    } catch (error) {
      void link.close()
      throw openError(error)
    }
    return link
  }

  private constructor(terms: Terms) {
    this.#terms = terms
    const { server, shared = false } = terms
    const overflow = (entry: Entry) => this.#giveUp(entry, readsTooSlowly)
    this.#calls = new InFlight({ server, shared, overflow })
  }

  async #greet(signal: Signal): Promise<void> {
    this.#greeted = await greet((call) => this.exchange(call), this.#terms, signal)
    if (this.discover === undefined) {
      const taken = this.#send(notificationText('notifications/initialized'))
      await orAborted(Promise.race([taken, this.#terms.clock.sleep(INITIALIZED_MS, signal)]), signal)
    }
    if (this.ended.aborted) throw this.ended.reason
  }

  get greeting(): Message {
    return this.#greeted.greeting
  }

  get era(): Era {
    return this.discover === undefined ? 'legacy' : 'modern'
  }

  /** What a server of the modern era says of itself; undefined in the legacy era. */
  get discover(): Discover | undefined {
    return this.#greeted.discover
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    const { signal, headers, record } = call
    const over = this.ended.aborted ? (this.ended.reason as GatewayError) : undefined
    const error = over ?? (signal.aborted ? abortError(signal) : undefined)
    if (error !== undefined) return Promise.resolve(failure(call, error))
    const refused = this.#terms.audience.refusal?.(call)
    if (refused !== undefined) return Promise.resolve(refused)
    return new Promise((resolve) => {
      const entry = this.#calls.add(call, resolve, this.#aborted)
      const onWrite = () => {
        entry.written = true
        record.sent = true
      }
      this.#send(toServer(call, entry.id), { signal, headers, onWrite }).catch((cause: GatewayError) => {
        this.#calls.settle(entry, failure(call, cause))
      })
    })
  }

  /** `from`: who sends it, where callers share the conversation. */
  async post(text: string, from?: Caller): Promise<void> {
    if (this.ended.aborted) throw this.ended.reason
    const message = readMessage(text)
    if (message === undefined || ours.has(message.value.method)) return
    if (kindOf(message.value) === 'response') return this.#requests.reply(message, from)
    if (this.#unread >= MAX_UNREAD) {
      throw gatewayError(
        'overloaded',
        `the server reads too slowly (${MAX_UNREAD} notifications wait for it)`,
      )
    }
    this.#unread++
    await this.#send(text).finally(() => this.#unread--)
  }

  /** Does nothing: a pipe carries everything anyway. */
  listen(): void {}

  async close(): Promise<void> {
    this.#over(gatewayError('cancelled', 'the conversation was closed'))
    await this.#pipe?.close()
  }

  /** Ends all that goes on for one caller, and leaves the conversation to the others. */
  abandon(caller: Caller, error: GatewayError): void {
    for (const entry of this.#calls.of(caller)) this.#giveUp(entry, error)
    this.#calls.left(caller)
    this.#terms.audience.left?.(caller)
    this.#requests.abandon(caller)
  }

  readonly #aborted = (entry: Entry): void => this.#giveUp(entry, abortError(entry.call.signal))

  /** The answer of the call no longer matters to anybody, and the server is told so. */
  #giveUp(entry: Entry, error: GatewayError): void {
    const isDone = this.#calls.isAnswered(entry)
    this.#calls.settle(entry, failure(entry.call, error))
    if (isDone || !entry.written || greetings.has(entry.call.method)) return
    this.#calls.abandon(entry)
    const params = { requestId: entry.id, reason: error.message }
    this.#send(notificationText('notifications/cancelled', params)).catch((cause: GatewayError) => {
      this.#terms.log.debug({ reason: cause.reason }, 'could not tell the server of a cancellation')
    })
  }

  #send(text: string, posting?: Posting): Promise<void> {
    return (
      this.#pipe?.send(text, posting) ??
      Promise.reject(gatewayError('upstream_unavailable', 'not connected yet'))
    )
  }

  #over(error: GatewayError): void {
    if (this.ended.aborted) return
    this.#end.abort(error)
    for (const entry of this.#calls.of()) this.#calls.settle(entry, failure(entry.call, error))
  }
}
