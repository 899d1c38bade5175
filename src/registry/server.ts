import { isDeepStrictEqual } from 'node:util'
import { serverHealth, type ServerHealthConfig } from '../config/schema/health-schema.ts'
import type { ServerConfig } from '../config/schema/schema.ts'
import type { Caller, Layer, Service } from '../mesh/call.ts'
import { Cancellation, type Signal } from '../mesh/cancel.ts'
import { type Cancel, type Clock, LONGEST_TIMER_MS, type Millis } from '../mesh/clock.ts'
import type { CrashLoop } from '../mesh/wire-shape.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import { notificationText } from '../protocol/jsonrpc.ts'
import { type Era, MODERN_VERSION } from '../protocol/versions.ts'
import { otherEra } from '../upstreams/era.ts'
import { orAborted } from '../upstreams/failure.ts'
import { openPlainHttp, type PlainHttp } from '../upstreams/http/http-wire.ts'
import { concealing } from '../upstreams/server-words.ts'
import { Reachability } from '../upstreams/reachability.ts'
import type { Eras, Starting, KnownTransport, Upstream } from '../upstreams/upstream.ts'
import { formatDuration } from '../units/duration.ts'
import { endpointsOf } from './connection.ts'
import { Discovery, type DiscoveryOptions } from './discovery.ts'
import { type FailureReason, failureReasonOf, type Probe } from './health/probe.ts'
import { type ProbeResult, ServerHealth } from './health/server-health.ts'
import { kinds, type ListKind } from '../protocol/lists.ts'
import { KnownServer, type KnownServerParts } from './known-server.ts'
import { LegacyView } from './legacy-view.ts'
import {
  type BoundSession,
  FaultedAttempts,
  UpstreamSessions,
  type UpstreamSessionsOptions,
  sendOver,
  whileStarting,
} from '../upstreams/sessions.ts'

// The error and the type of `Server.plainHttp`, for modules that may not import from upstreams.
export { plainHttpError, type PlainHttp } from '../upstreams/http/http-wire.ts'
import type { TaskBinding } from '../upstreams/shared/task-binding.ts'

/** How long an agent that names no time waits for the start of a process, in milliseconds. */
const LONGEST_START_MS: Millis = 60_000

/** Longest wait of a handshake for the restart of a crashed process, in milliseconds. */
const LONGEST_RESTART_MS: Millis = 20_000

export interface ServerParts extends KnownServerParts {
  /** Names the connections: as long as it is the same, a reload keeps this very server. See `connectionOf`. */
  readonly connection: string
  /** The owners of its tasks, for the server that takes its place. */
  readonly tasks?: TaskBinding
  readonly replicas: readonly Upstream[]
  /** The `initialize` params of the gateway itself. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** Faults below all policies: they hit what the gateway asks on its own behalf as well. */
  readonly faults: Layer
  /** The names of the faults that hold a handshake with it now; none unless given. */
  readonly heldBy?: () => readonly string[]
  /** How much of the usual pause between probes the first one is, in [0, 1]; all of it unless given. */
  readonly probePhase?: number
  /** A probe has ended, with this result; nobody is told unless given. */
  readonly onProbe?: (server: Server, probe: Probe, result: ProbeResult) => void
  /** Told why it has not taken a notification of an agent; nobody is told unless given. */
  readonly onLost?: (reason: string) => void
  /** Told of each upstream session that is over; nobody is told unless given. */
  readonly onSessionEnd?: UpstreamSessionsOptions['onEnd'] | undefined
  /** Counts the work at all servers that goes on although no agent waits for it. */
  readonly load?: { detached: number } | undefined
}

/** An entry of the registry while it lives: what is known of it, its replicas, and the upstream sessions with them. */
export class Server extends KnownServer {
  readonly connection: string
  readonly tasks: TaskBinding | undefined
  /** The identity of each replica's endpoint. */
  readonly endpoints: readonly string[]
  readonly upstreamSessions: UpstreamSessions
  /** The findings of probes about the server; nothing while the server's entry says `health: false`. */
  readonly health: ServerHealth
  /** Sends a call over its caller's upstream session, which is begun if need be. */
  readonly send: Service
  /** For attempts that faults end before they come to `send`. */
  readonly faultedAttempts: FaultedAttempts
  readonly #replicas: readonly Upstream[]
  readonly #clock: Clock
  readonly #load: { detached: number }
  readonly #discovery: Discovery
  readonly #legacyView: LegacyView
  readonly #reachability: Reachability
  #plainHttp: PlainHttp | undefined
  #holders = 0
  #cancelSettling: Cancel = () => undefined
  #closing: Promise<void> | undefined

  constructor(parts: ServerParts) {
    super(parts)
    const {
      name,
      config,
      connection,
      tasks,
      replicas,
      clock,
      initializeParams,
      faults,
      heldBy = () => [],
      load = { detached: 0 },
    } = parts
    // Durations are read when they are needed: the config may change meanwhile.
    const current = () => this.config
    const settings = () => healthOf(this.config)
    const health = new ServerHealth(clock, settings, parts.probePhase)
    this.health = health
    this.connection = connection
    this.tasks = tasks
    this.endpoints = endpointsOf(config)
    this.upstreamSessions = new UpstreamSessions({
      server: name,
      replicas,
      clock,
      onLost: ({ reason }) => parts.onLost?.(reason),
      get passesBaggage() {
        return current().forwardBaggage
      },
      onEnd: (...ended) => parts.onSessionEnd?.(...ended),
      get startMs() {
        return current().timeouts.start
      },
      get timeoutMs() {
        return current().timeouts.discovery
      },
    })
    this.#clock = clock
    this.#load = load
    this.#replicas = replicas
    const discover = (
      era: Era,
      hooks: Pick<DiscoveryOptions, 'onUp' | 'onDown' | 'onStale' | 'onReverted' | 'onProbe' | 'onSign'>,
    ) =>
      new Discovery({
        ...hooks,
        server: name,
        conceal: (text) => concealing(current())(text),
        upstreamSessions: this.upstreamSessions,
        era,
        initializeParams,
        clock,
        faults,
        heldBy,
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
          return current().health === false ? current().refresh : health.pauseMs
        },
        get pingMs() {
          return settings().every
        },
        get tool() {
          // A server may have two discoveries: only the discovery that looks after the server's health calls the tool.
          return current().health === false || hooks.onProbe === undefined ? undefined : settings().tool
        },
      })
    this.#discovery = discover('modern', {
      onUp: (catalog, initializeResult) => {
        this.cameUp(catalog, initializeResult)
        this.upstreamSessions.restore()
        const replica = this.upstreamSessions.current(this.#discovery)?.replica
        if (replica !== undefined) this.#reachability.found(replica)
      },
      onStale: () => parts.onStale(this),
      onReverted: (catalog) => this.wasRestored(catalog),
      onDown: (error) => this.wentDown(error),
      onSign: () => health.sign(),
      onProbe: (probe) => {
        if (this.config.health !== false) parts.onProbe?.(this, probe, health.take(probe))
      },
    })
    this.#legacyView = new LegacyView({
      discovery: (hooks) => discover('legacy', hooks),
      onCatalog: (catalog, initializeResult) => this.offersLegacy(catalog, initializeResult),
      onStale: () => parts.onStale(this),
      onEnd: (discovery) => void this.upstreamSessions.drop(discovery),
    })
    this.#reachability = new Reachability({ replicas, clock, onBack: () => this.#discovery.run() })
    const sending = (byFault: boolean): ConstructorParameters<typeof FaultedAttempts>[0] => ({
      upstreamSessions: this.upstreamSessions,
      replicas: replicas.length,
      mayMove: () => this.mayMove,
      suspect: (replica, reason) => {
        if (replica !== undefined)
          this.#reachability.suspect(replica, reason === 'upstream_unavailable', byFault)
        // Answers are signs of life, whatever they say, and one slow tool is no outage.
        if (reason !== 'upstream_unavailable' && reason !== 'upstream_disconnected') return
        health.sign()
        this.#discovery.suspect()
      },
    })
    this.send = sendOver({ ...sending(false), clock, answered: () => this.#discovery.answered() })
    this.faultedAttempts = new FaultedAttempts(sending(true))
  }

  /** The transport behind each URL, as far as it is not in the config and has been found out. */
  get transports(): readonly (KnownTransport | undefined)[] {
    return this.#replicas.map((replica) => replica.transport?.())
  }

  /** Returns the transport to a replica: the transport that was found, where the config does not say. */
  transportAt(replica = 0): ServerConfig['type'] {
    return this.transports[replica]?.transport === 'sse' ? 'sse' : this.config.type
  }

  /** The eras that each replica speaks, as far as anybody has found out. */
  get eras(): readonly Eras[] {
    return this.#replicas.map((replica) => replica.eras?.() ?? {})
  }

  /**
   * The era in which a caller is spoken for at a replica; before there is an upstream session, the one that is to be expected.
   * Undefined while nobody knows.
   */
  eraFor(caller: Caller, replica: number | undefined): Era | undefined {
    const said = this.upstreamSessions.current(caller, replica)?.upstreamSession.initializeResult.value
      .protocolVersion
    if (said !== undefined) return said === MODERN_VERSION ? 'modern' : 'legacy'
    const eras = this.eras[replica ?? 0] ?? {}
    const own = caller.era
    return [own, otherEra(own)].find((era) => eras[era]?.speaks)
  }

  /** The era in which all callers are spoken for; undefined when that depends on the caller, or nobody knows. */
  get onlyEra(): Era | undefined {
    if (this.config.type === 'sse') return 'legacy'
    const [eras = {}] = this.eras
    const isOnly = (era: Era) => {
      const known = eras[era]
      const isForAll = known?.decidedBy === 'config' || this.config.type === 'stdio'
      return known?.speaks === true && (isForAll || eras[otherEra(era)]?.speaks === false)
    }
    return (['legacy', 'modern'] as const).find(isOnly)
  }

  /**
   * A caller's upstream session, begun if need be; the caller waits `limitMs` for it at most, undefined for as long as it takes.
   * Rejects with a `GatewayError`.
   */
  async converse(caller: Caller, limitMs?: Millis): Promise<BoundSession> {
    const longestMs = this.upstreamSessions.startsProcesses ? LONGEST_START_MS : undefined
    const ms = limitMs ?? longestMs
    if (ms === undefined) return this.upstreamSessions.soon(caller)
    const limit = new Cancellation()
    const opening = this.#afterPauses(caller, limit)
    const cancel = this.#clock.after(Math.min(ms, LONGEST_TIMER_MS), () => {
      const error = gatewayError('deadline_exceeded', `the server did not greet within ${formatDuration(ms)}`)
      limit.abort(whileStarting(error, this.upstreamSessions.starting(caller)))
    })
    return orAborted(opening, limit).finally(cancel)
  }

  /** Begins an upstream session. Waits for the restart of a crashed process, as calls do. */
  async #afterPauses(caller: Caller, signal: Signal): Promise<BoundSession> {
    const until = this.#clock.now() + LONGEST_RESTART_MS
    for (;;) {
      try {
        return await this.upstreamSessions.soon(caller)
      } catch (thrown) {
        const { cause, retryAfterMs, notStarted } = thrown as GatewayError
        const isPaused = cause === 'process_exit' && retryAfterMs !== undefined && notStarted !== true
        if (!isPaused || this.#clock.now() + retryAfterMs > until) throw thrown
        await this.#clock.sleep(retryAfterMs, signal)
      }
    }
  }

  /** The replica that may remember something of a caller. */
  home(caller: Caller): number | undefined {
    return this.upstreamSessions.home(caller)
  }

  /** How many callers are at home at each replica; undefined when the server keeps nothing of such a caller. */
  homes(caller: Caller): readonly number[] | undefined {
    return this.upstreamSessions.homes(caller)
  }

  /** The way to it for plain HTTP, to be used only while it is retained; undefined unless its entry says `passthrough: true`. */
  get plainHttp(): PlainHttp | undefined {
    const { config } = this
    if (config.type === 'stdio' || !config.passthrough) return undefined
    return (this.#plainHttp ??= openPlainHttp(config))
  }

  /** Why it is not well: by the latest probe, or else by what kept it from coming up. */
  get failureReason(): FailureReason | undefined {
    return this.health.failure?.reason ?? (this.error && failureReasonOf(this.error))
  }

  /** Whether callers may get another session in place of theirs, without a word. */
  get mayMove(): boolean {
    return this.config.type !== 'http' || this.config.sessionRecovery === 'transparent'
  }

  /** Takes a caller's upstream session with a replica from it: its next call begins another one, perhaps elsewhere. */
  leave(caller: Caller, replica: number): void {
    this.upstreamSessions.leave(caller, replica)
  }

  /** When a replica that could not be reached was last found to be reachable again, on the monotonic clock. */
  backAt(replica: number): number {
    return this.#reachability.backAt(replica)
  }

  /** Whether a replica is known to be out of reach now. */
  isLost(replica: number): boolean {
    return this.#reachability.isLost(replica)
  }

  /** Resolves when a replica is found to take requests; see `Reachability.reached`. */
  reached(replica: number): Promise<boolean> | undefined {
    return this.#reachability.reached(replica)
  }

  start(): void {
    this.#discovery.run()
    if (!this.upstreamSessions.startsProcesses) return
    this.#cancelSettling = this.#clock.after(this.config.timeouts.discovery, () => this.settle())
  }

  /** The start of the process that the gateway itself waits for; undefined when there is none. */
  get starting(): Starting | undefined {
    return this.upstreamSessions.starting(this.#discovery)
  }

  /** The first agent that needs the offers of the legacy era has the gateway ask for them, where they may be something of their own. */
  override settledFor(era: Era): Promise<void> {
    const known = this.settled.then(() => this.#discovery.refreshed)
    if (era === 'modern') return known
    return known.then(() => {
      const isModern = this.initializeResult?.value.protocolVersion === MODERN_VERSION
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
    if (entry === this.config) return
    const { health, refresh, timeouts } = this.config
    const before = this.entries('tools')
    this.follow(entry)
    for (const replica of this.#replicas) replica.follow?.(entry)
    if (entry.health === false) this.health.forget()
    // By the new times, the next round may be due at once.
    const isTimed =
      !isDeepStrictEqual(health, entry.health) ||
      refresh !== entry.refresh ||
      timeouts.discovery !== entry.timeouts.discovery
    if (isTimed) {
      this.#discovery.run()
      this.#legacyView.look()
    }
    const after = this.entries('tools')
    if (before.length === after.length && before.every((tool, index) => tool === after[index])) return
    this.tellChanged(['tools'])
    this.announce(['tools'])
  }

  /** Tells those who look onto this server alone that lists have changed, which the server itself does not know. */
  announce(changed: readonly ListKind[]): void {
    for (const method of new Set(changed.map((kind) => kinds[kind].changed))) {
      const message = { text: notificationText(method), value: { jsonrpc: '2.0', method } }
      for (const caller of this.upstreamSessions.callers())
        if (!(caller instanceof Discovery)) caller.receive(this.name, message)
    }
  }

  /** It is in the config no more, or not as it is: nobody needs to know of it but the calls that are under way. */
  retire(): void {
    this.#cancelSettling()
    this.#discovery.stop()
    this.#legacyView.stop()
    this.#reachability.stop()
    this.endGrace()
    void this.upstreamSessions.drop(this.#discovery)
  }

  /** Has its lists fetched again soon; `greetsAnew`: see `Discovery.refresh`. */
  refresh({ greetsAnew = false } = {}): void {
    this.#discovery.refresh({ greetsAnew })
    this.#legacyView.look({ all: true, greetsAnew })
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

  /** Ends the processes behind it, and each that is started while the loop lasts; see `Upstream.crash`. */
  crash(loop: CrashLoop): void {
    for (const replica of this.#replicas) replica.crash?.(loop)
  }

  /** Has bytes read as if the processes behind it had written them; see `Upstream.write`. */
  write(bytes: Buffer, over: Signal): Promise<void> | undefined {
    const writing = this.#replicas.flatMap((replica) => replica.write?.(bytes, over) ?? [])
    return writing.length === 0 ? undefined : Promise.all(writing).then(() => undefined)
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

  /** Ends its upstream sessions and processes. Idempotent. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.retire()
    // At the same time, as each of them may take its time of grace: replicas wait themselves for what goes on over them.
    await Promise.all([
      this.upstreamSessions.closeAll(),
      ...this.#replicas.map((replica) => replica.close()),
      this.#plainHttp?.pool.destroy(),
    ])
  }
}

/** The settings of probes; the defaults where there are none. */
function healthOf({ health }: ServerConfig): ServerHealthConfig {
  return health === false ? unwatched : health
}

const unwatched = serverHealth.parse({})
