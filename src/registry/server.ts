import type { ServerConfig } from '../config/schema/schema.ts'
import type { Caller, Layer, Service } from '../mesh/call.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { notificationText } from '../protocol/jsonrpc.ts'
import { MODERN_VERSION } from '../protocol/modern.ts'
import { otherEra, ownEra } from '../upstreams/era-verdicts.ts'
import { orAborted } from '../upstreams/failure.ts'
import { openPlainHttp, type PlainHttp } from '../upstreams/http/plain-http.ts'
import type { Era, Eras, Upstream } from '../upstreams/upstream.ts'
import { endpointsOf } from './connection.ts'
import { Discovery, type DiscoveryOptions } from './discovery.ts'
import { kinds } from './kinds.ts'
import { KnownServer, type KnownServerParts } from './known-server.ts'
import { LegacyView } from './legacy-view.ts'
import { type BoundLink, Links } from './links.ts'
import { Reachability } from './reachability.ts'
import { sendOver } from './sending.ts'

/** Longest time that a timer can be set to, in milliseconds. */
const LONGEST_MS: Millis = 2 ** 31 - 1

interface ServerParts extends KnownServerParts {
  /** Names the connections: as long as it is the same, a reload keeps this very server. See `connectionOf`. */
  readonly connection: string
  readonly replicas: readonly Upstream[]
  /** The `initialize` params of the gateway itself. */
  readonly hello: Readonly<Record<string, unknown>>
  /** Faults below all policies: they hit what the gateway asks on its own behalf as well. */
  readonly faults: Layer
  /** What goes on at all servers although no agent waits for it: counted here. */
  readonly load?: { detached: number } | undefined
}

/** An entry of the registry while it lives: what is known of it, its replicas, and the conversations with them. */
export class Server extends KnownServer {
  readonly connection: string
  /** The identity of each replica's endpoint. */
  readonly endpoints: readonly string[]
  readonly links: Links
  /** Sends a call over its caller's conversation, which is begun if need be. */
  readonly send: Service
  readonly #replicas: readonly Upstream[]
  readonly #clock: Clock
  readonly #load: { detached: number }
  readonly #discovery: Discovery
  readonly #legacyView: LegacyView
  readonly #reachability: Reachability
  #plainHttp: PlainHttp | undefined
  #holders = 0
  #closing: Promise<void> | undefined

  constructor(parts: ServerParts) {
    super(parts)
    const { name, config, connection, replicas, clock, hello, faults, load = { detached: 0 } } = parts
    // Durations are read when they are needed: the config may change meanwhile.
    const current = () => this.config
    this.connection = connection
    this.endpoints = endpointsOf(config)
    this.links = new Links({
      replicas,
      clock,
      get timeoutMs() {
        return current().timeouts.discovery
      },
    })
    this.#clock = clock
    this.#load = load
    this.#replicas = replicas
    const discover = (era: Era, hooks: Pick<DiscoveryOptions, 'onUp' | 'onDown' | 'onStale'>) =>
      new Discovery({
        ...hooks,
        server: name,
        links: this.links,
        era,
        hello,
        clock,
        faults,
        get timeoutMs() {
          return current().timeouts.discovery
        },
        get refreshMs() {
          return current().refresh
        },
        get maxList() {
          return current().maxList
        },
        get probeMs() {
          return current().probe
        },
      })
    this.#discovery = discover('modern', {
      onUp: (catalog, greeting) => this.cameUp(catalog, greeting),
      onStale: () => parts.onStale(this),
      onDown: (error) => this.wentDown(error),
    })
    this.#legacyView = new LegacyView({
      discovery: (hooks) => discover('legacy', hooks),
      onCatalog: (catalog, greeting) => this.offersLegacy(catalog, greeting),
      onStale: () => parts.onStale(this),
      onEnd: (discovery) => void this.links.drop(discovery),
    })
    this.#reachability = new Reachability({ replicas, clock, onBack: () => this.#discovery.run() })
    this.send = sendOver({
      links: this.links,
      clock,
      replicas: replicas.length,
      mayMove: () => this.mayMove,
      suspect: (replica, reason) => {
        if (replica !== undefined) this.#reachability.suspect(replica, reason === 'upstream_unavailable')
        // Answers are signs of life, whatever they say, and one slow tool is no outage.
        if (reason === 'upstream_unavailable' || reason === 'upstream_disconnected') this.#discovery.suspect()
      },
    })
  }

  /** The eras that each replica speaks, as far as anybody has found out. */
  get eras(): readonly Eras[] {
    return this.#replicas.map((replica) => replica.eras?.() ?? {})
  }

  /**
   * The era in which a caller is spoken for at a replica; before there is a conversation, the one that is to be expected.
   * Undefined while nobody knows.
   */
  eraFor(caller: Caller, replica: number | undefined): Era | undefined {
    const said = this.links.current(caller, replica)?.link.greeting.value.protocolVersion
    if (said !== undefined) return said === MODERN_VERSION ? 'modern' : 'legacy'
    const eras = this.eras[replica ?? 0] ?? {}
    const own = ownEra(caller)
    return [own, otherEra(own)].find((era) => eras[era]?.speaks)
  }

  /** The era in which all callers are spoken for; undefined when that depends on the caller, or nobody knows. */
  get onlyEra(): Era | undefined {
    const [eras = {}] = this.eras
    const isOnly = (era: Era) => {
      const verdict = eras[era]
      const isForAll = verdict?.decidedBy === 'config' || this.config.type === 'stdio'
      return verdict?.speaks === true && (isForAll || eras[otherEra(era)]?.speaks === false)
    }
    return (['legacy', 'modern'] as const).find(isOnly)
  }

  /**
   * A caller's conversation, begun if need be; the caller waits `limitMs` for it at most, undefined for as long as it takes.
   * Rejects with a `GatewayError`.
   */
  async converse(caller: Caller, limitMs?: Millis): Promise<BoundLink> {
    const opening = this.links.of(caller)
    if (limitMs === undefined) return opening
    const limit = new Cancellation()
    const cancel = this.#clock.after(Math.min(limitMs, LONGEST_MS), () => {
      limit.abort(gatewayError('deadline_exceeded', `the server did not greet within ${limitMs} ms`))
    })
    return orAborted(opening, limit).finally(cancel)
  }

  /** The replica that may remember something of a caller. */
  home(caller: Caller): number | undefined {
    return this.links.home(caller)
  }

  /** How many callers are at home at each replica; undefined when the server keeps nothing of such a caller. */
  homes(caller: Caller): readonly number[] | undefined {
    return this.links.homes(caller)
  }

  /** The way to it for plain HTTP, to be used only while it is retained; undefined unless its entry says `passthrough: true`. */
  get plainHttp(): PlainHttp | undefined {
    const { config } = this
    if (config.type === 'stdio' || !config.passthrough) return undefined
    return (this.#plainHttp ??= openPlainHttp(config))
  }

  /** Whether callers may get another session in place of theirs, without a word. */
  get mayMove(): boolean {
    return this.config.type !== 'http' || this.config.sessionRecovery === 'transparent'
  }

  /** Takes a caller's conversation with a replica from it: its next call begins another one, perhaps elsewhere. */
  leave(caller: Caller, replica: number): void {
    this.links.leave(caller, replica)
  }

  /** When a replica that could not be reached was last found to be reachable again, on the monotonic clock. */
  backAt(replica: number): number {
    return this.#reachability.backAt(replica)
  }

  start(): void {
    this.#discovery.run()
  }

  /** What is offered in the legacy era is asked for by the first who needs it, where it may be something of its own. */
  override settledFor(era: Era): Promise<void> {
    if (era === 'modern') return this.settled
    return this.settled.then(() => {
      const isModern = this.greeting?.value.protocolVersion === MODERN_VERSION
      const { legacy, modern } = this.eras[0] ?? {}
      const isOnly = legacy?.speaks === false || modern?.decidedBy === 'config' || this.config.type !== 'http'
      return this.state === 'up' && isModern && !isOnly ? this.#legacyView.begin() : undefined
    })
  }

  /**
   * Goes by another entry from now on, one with the same connections: they stay, and so does what is known. Agents are
   * told if they may see other tools.
   */
  reconfigure(entry: ServerConfig): void {
    const { probe, refresh, timeouts } = this.config
    const before = this.entries('tools')
    this.follow(entry)
    // What it was waiting for may be due by the new times.
    const isTimed =
      probe !== entry.probe || refresh !== entry.refresh || timeouts.discovery !== entry.timeouts.discovery
    if (isTimed) {
      this.#discovery.run()
      this.#legacyView.look()
    }
    const after = this.entries('tools')
    if (before.length === after.length && before.every((tool, index) => tool === after[index])) return
    this.tellChanged(['tools'])
    const method = kinds.tools.changed
    const message = { text: notificationText(method), value: { jsonrpc: '2.0', method } }
    // Whoever looks onto this server alone hears of changes from nobody else.
    for (const caller of this.links.callers())
      if (caller !== this.#discovery) caller.receive(this.name, message)
  }

  /** It is in the config no more, or not as it is: nobody needs to know of it but the calls that are under way. */
  retire(): void {
    this.#discovery.stop()
    this.#legacyView.stop()
    this.endGrace()
    void this.links.drop(this.#discovery)
  }

  /** Has its lists fetched again soon. */
  refresh(): void {
    this.#discovery.refresh()
    this.#legacyView.look({ all: true })
  }

  /** How many processes stand behind it; undefined when there never are any. */
  get processes(): number | undefined {
    const counts = this.#replicas.flatMap((replica) => replica.processes?.() ?? [])
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count)
  }

  /** Signals the processes behind it; false when there are none. */
  signal(name: NodeJS.Signals): boolean {
    return this.#replicas.map((replica) => replica.signal?.(name) === true).includes(true)
  }

  /** One more generation uses it. */
  retain(): void {
    this.#holders++
  }

  /** A generation has ended: with the last that used it, it ends too. */
  release(): void {
    if (--this.#holders === 0) void this.close()
  }

  /** Stays until what this returns is called, once, for something that no agent waits for. */
  hold(): () => void {
    this.retain()
    this.#load.detached++
    return () => {
      this.#load.detached--
      this.release()
    }
  }

  /** Ends its conversations and processes. Idempotent. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.retire()
    this.#reachability.stop()
    // At the same time, as each of them may take its time of grace: replicas wait themselves for what goes on over them.
    await Promise.all([
      this.links.closeAll(),
      ...this.#replicas.map((replica) => replica.close()),
      this.#plainHttp?.pool.destroy(),
    ])
  }
}
