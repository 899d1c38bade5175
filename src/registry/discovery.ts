import type { Answer, Caller, Message, Layer } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../mesh/errors.ts'
import { orAborted } from '../upstreams/failure.ts'
import type { Era, Link } from '../upstreams/upstream.ts'
import type { Catalog } from './catalog.ts'
import { Lists } from './discovery/lists.ts'
import { Questions } from './discovery/questions.ts'
import { Rounds } from './discovery/rounds.ts'
import { standIn } from './discovery/stand-in.ts'
import type { Links } from './links.ts'

export interface DiscoveryOptions {
  readonly server: string
  readonly links: Links
  /** The era in which it asks where the server speaks both; modern unless given. */
  readonly era?: Era
  /** The `initialize` params of the gateway itself. */
  readonly hello: Readonly<Record<string, unknown>>
  /** Faults stand in the way of what it asks, too. */
  readonly faults: Layer
  readonly clock: Clock
  /** For one whole round: handshake and lists. Read at each, as the times below: they may change. */
  readonly timeoutMs: Millis
  /** Between two rounds while the server is up. */
  readonly refreshMs: Millis
  /** How much of each list is kept, in bytes. */
  readonly maxList: number
  /** Between two pings while the server is up. */
  readonly probeMs: Millis
  /** A round succeeded. */
  readonly onUp: (catalog: Catalog, greeting: Message) => void
  /** The server says that a list has changed; what it is now is found out by the next round. */
  readonly onStale: () => void
  /** A round failed. */
  readonly onDown: (error: GatewayError) => void
}

/** The pause after a round that failed, in milliseconds: it doubles from the first of these to the last. */
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 30_000

/** Several `list_changed` within this time cause one round, in milliseconds. */
const COALESCE_MS = 250

/**
 * Keeps one server's catalog true: asks at the start, when the server says that a list changed, and now and
 * then; pings in between; and comes back with a doubling pause while the server is down. Runs on its own,
 * so that no other server and no agent ever waits for it.
 */
export class Discovery implements Caller {
  readonly id: string
  readonly hello: Readonly<Record<string, unknown>>
  readonly listening = true
  /** In the modern era the catalog holds what servers wrote, whoever will read it. */
  readonly takesInputRequired: boolean
  readonly #options: DiscoveryOptions
  readonly #questions: Questions
  readonly #lists: Lists
  readonly #rounds: Rounds
  readonly #watched = new WeakSet<Link>()
  #retryMs: Millis = FIRST_RETRY_MS

  constructor(options: DiscoveryOptions) {
    const { server, hello, clock, faults, era = 'modern' } = options
    this.id = `discovery:${server}:${era}`
    this.takesInputRequired = era === 'modern'
    this.hello = hello
    this.#options = options
    this.#questions = new Questions(server, this, clock, faults)
    this.#lists = new Lists(
      clock,
      () => options.refreshMs,
      () => options.maxList,
    )
    this.#rounds = new Rounds(clock, () => this.#round())
  }

  /** Begins, or begins anew at once: a restart, or a suspicion that a call raised. */
  run(): void {
    this.#rounds.within(0)
  }

  /** Fetches all lists again, now. */
  refresh(): void {
    this.#lists.doubt()
    this.#rounds.within(0)
  }

  /** A call could not reach the server: look now, not at the next ping. Does nothing while that is under way. */
  suspect(): void {
    if (!this.#rounds.running && this.#retryMs === FIRST_RETRY_MS) this.#rounds.within(0)
  }

  stop(): void {
    this.#rounds.stop()
  }

  receive(_: string, message: Message, answer?: Answer): void {
    if (answer !== undefined) return void answer(standIn(message)).catch(ignore)
    if (!this.#lists.hear(message)) return
    this.#options.onStale()
    this.#rounds.within(COALESCE_MS)
  }

  /** One round; resolves to the time until the next one. */
  async #round(): Promise<Millis> {
    const { clock, links, timeoutMs, probeMs } = this.#options
    const limit = new AbortController()
    const cancel = clock.after(timeoutMs, () => {
      limit.abort(
        gatewayError('attempt_timeout', `discovery took longer than ${timeoutMs} ms`, { sent: true }),
      )
    })
    try {
      const { link } = await orAborted(links.of(this), limit.signal)
      this.#watch(link)
      if (this.#lists.fresh) await this.#questions.ping(link, limit.signal)
      else await this.#lists.fetch(link.greeting, this.#questions.over(link, limit.signal))
      this.#retryMs = FIRST_RETRY_MS
      if (!this.#rounds.stopped) this.#options.onUp(this.#lists.catalog, link.greeting)
      return probeMs
    } catch (error) {
      return await this.#failed(error)
    } finally {
      cancel()
    }
  }

  async #failed(cause: unknown): Promise<Millis> {
    const error = isGatewayError(cause) ? cause : gatewayError('internal', 'discovery failed')
    this.#lists.doubt()
    if (!this.#rounds.stopped) this.#options.onDown(error)
    await this.#options.links.drop(this)
    // Whatever happened meanwhile, such as the end of the conversation: the pause comes first.
    this.#rounds.forget()
    const delayMs = Math.max(error.retryAfterMs ?? 0, this.#retryMs)
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
    return delayMs
  }

  /** Looks at once when the conversation ends by itself, but not ever more often when no conversation lasts. */
  #watch(link: Link): void {
    if (this.#watched.has(link)) return
    this.#watched.add(link)
    const { clock } = this.#options
    const from = clock.now()
    const ended = () => this.#rounds.within(Math.max(0, from + FIRST_RETRY_MS - clock.now()))
    link.ended.addEventListener('abort', ended, { once: true })
  }
}

/** The server asked and is gone: its next round will tell. */
function ignore(): void {}
