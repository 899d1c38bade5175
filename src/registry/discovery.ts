import type { Signal } from '../mesh/cancel.ts'
import type { Answer, Caller, Message, Layer } from '../mesh/call.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError } from '../mesh/errors.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { Link } from '../upstreams/upstream.ts'
import { emptyCatalog, fetchList, type Catalog, type Entry } from './catalog.ts'
import { kinds, listKinds, type ListKind } from './kinds.ts'
import type { Links } from './links.ts'
import { Questions } from './questions.ts'
import { standIn } from './stand-in.ts'

export interface DiscoveryOptions {
  readonly server: string
  readonly links: Links
  /** The `initialize` params of the gateway itself. */
  readonly hello: Readonly<Record<string, unknown>>
  /** Faults stand in the way of what it asks, too. */
  readonly faults: Layer
  readonly clock: Clock
  /** For one whole round: handshake and lists. */
  readonly timeoutMs: Millis
  /** Between two rounds while the server is up. */
  readonly refreshMs: Millis
  /** Between two pings while the server is up. */
  readonly probeMs: Millis
  /** A round succeeded. */
  readonly onUp: (catalog: Catalog, greeting: Message) => void
  /** A round failed. */
  readonly onDown: (error: GatewayError) => void
}

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
  /** The catalog holds what servers wrote, whoever will read it. */
  readonly takesInputRequired = true
  readonly #options: DiscoveryOptions
  #stopped = false
  #catalog = emptyCatalog
  #stale = new Set<ListKind>(listKinds)
  #retryMs: Millis = FIRST_RETRY_MS
  #next: { readonly at: Millis; readonly cancel: Cancel } | undefined
  #nextRefresh: Millis = 0
  #running = false
  #again = false
  readonly #questions: Questions

  constructor(options: DiscoveryOptions) {
    this.id = `discovery:${options.server}`
    this.hello = options.hello
    this.#options = options
    this.#questions = new Questions(options.server, this, options.clock, options.faults)
  }

  /** Begins, or begins anew at once: a restart, or a suspicion that a call raised. */
  run(): void {
    this.#schedule(0)
  }

  /** Fetches all lists again, now. */
  refresh(): void {
    for (const kind of listKinds) this.#stale.add(kind)
    this.#schedule(0)
  }

  /** A call could not reach the server: look now, not at the next ping. Does nothing while that is under way. */
  suspect(): void {
    if (!this.#running && this.#retryMs === FIRST_RETRY_MS) this.#schedule(0)
  }

  stop(): void {
    this.#stopped = true
    this.#unschedule()
  }

  receive(_: string, message: Message, answer?: Answer): void {
    if (answer !== undefined) return void answer(standIn(message)).catch(ignore)
    const changed = listKinds.filter((kind) => kinds[kind].changed === message.value.method)
    for (const kind of changed) this.#stale.add(kind)
    if (changed.length > 0) this.#schedule(COALESCE_MS)
  }

  /** Begins a round `delayMs` from now, unless one begins sooner anyway. */
  #schedule(delayMs: Millis): void {
    const { clock } = this.#options
    const at = clock.now() + delayMs
    if (this.#stopped || (this.#next !== undefined && this.#next.at <= at)) return
    this.#unschedule()
    this.#next = { at, cancel: clock.after(delayMs, () => void this.#round()) }
  }

  #unschedule(): void {
    this.#next?.cancel()
    this.#next = undefined
  }

  async #round(): Promise<void> {
    this.#next = undefined
    if (this.#running) {
      this.#again = true
      return
    }
    this.#running = true
    this.#again = false
    const delayMs = await this.#attempt()
    this.#running = false
    this.#schedule(this.#again ? 0 : delayMs)
  }

  /** One round; resolves to the time until the next one. */
  async #attempt(): Promise<Millis> {
    const { clock, links, timeoutMs, refreshMs, probeMs } = this.#options
    const limit = new AbortController()
    const cancel = clock.after(timeoutMs, () => {
      limit.abort(
        gatewayError('attempt_timeout', `discovery took longer than ${timeoutMs} ms`, { sent: true }),
      )
    })
    try {
      const { link } = await links.of(this)
      this.#watch(link)
      if (clock.now() >= this.#nextRefresh) {
        for (const kind of listKinds) this.#stale.add(kind)
        this.#nextRefresh = clock.now() + refreshMs
      }
      if (this.#stale.size === 0) await this.#questions.ping(link, limit.signal)
      else await this.#fetch(link, limit.signal)
      this.#retryMs = FIRST_RETRY_MS
      if (!this.#stopped) this.#options.onUp(this.#catalog, link.greeting)
      return probeMs
    } catch (error) {
      return await this.#failed(error)
    } finally {
      cancel()
    }
  }

  async #failed(cause: unknown): Promise<Millis> {
    const error = isGatewayError(cause) ? cause : gatewayError('internal', 'discovery failed')
    this.#nextRefresh = 0
    if (!this.#stopped) this.#options.onDown(error)
    await this.#options.links.drop(this)
    // Whatever happened meanwhile, such as the end of the conversation: the pause comes first.
    this.#unschedule()
    this.#again = false
    const delayMs = Math.max(error.retryAfterMs ?? 0, this.#retryMs)
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
    return delayMs
  }

  async #fetch(link: Link, signal: Signal): Promise<void> {
    const stale = [...this.#stale]
    this.#stale.clear()
    const { capabilities } = link.greeting.value
    const offered = (kind: ListKind) => isObject(capabilities) && kinds[kind].capability in capabilities
    const ask = this.#questions.over(link, signal)
    const lists: Record<ListKind, readonly Entry[]> = { ...this.#catalog.lists }
    await Promise.all(
      stale.map(async (kind) => {
        lists[kind] = offered(kind) ? await fetchList(kind, ask).catch(this.#lastKnown(kind)) : []
      }),
    )
    this.#catalog = { fetchedAt: this.#options.clock.wall(), lists }
  }

  /** A server whose tools work is up, whatever it says about its other lists: of those it keeps the last-known. */
  #lastKnown(kind: ListKind): (cause: unknown) => readonly Entry[] {
    return (cause) => {
      if (kind !== 'tools' && isGatewayError(cause) && cause.reason === 'bad_reply')
        return this.#catalog.lists[kind]
      throw cause
    }
  }

  readonly #watched = new WeakSet<Link>()

  /** Looks at once when the conversation ends by itself, but not ever more often when no conversation lasts. */
  #watch(link: Link): void {
    if (this.#watched.has(link)) return
    this.#watched.add(link)
    const { clock } = this.#options
    const from = clock.now()
    const ended = () => this.#schedule(Math.max(0, from + FIRST_RETRY_MS - clock.now()))
    link.ended.addEventListener('abort', ended, { once: true })
  }
}

/** The server asked and is gone: its next round will tell. */
function ignore(): void {}
