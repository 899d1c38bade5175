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

/** Default wait of an agent for the start of a process, in milliseconds. */
const LONGEST_START_MS: Millis = 60_000

/** Longest wait of a handshake for the restart of a crashed process, in milliseconds. */
const LONGEST_RESTART_MS: Millis = 20_000

export interface ServerParts extends KnownServerParts {
  /** Identity of the connections: a reload keeps this server while unchanged. See `connectionOf`. */
  readonly connection: string
  /** The task owners, passed on to a replacement server. */
  readonly tasks?: TaskBinding
  readonly replicas: readonly Upstream[]
  /** The `initialize` params of the gateway itself. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** Faults for the gateway's own requests. */
  readonly faults: Layer
  /** Returns the names of faults now holding a handshake with the server; default: none. */
  readonly heldBy?: () => readonly string[]
  /** Length of the first pause between probes as a share of the usual pause, in [0, 1]; default 1. */
  readonly probePhase?: number
  readonly onProbe?: (server: Server, probe: Probe, result: ProbeResult) => void
  /** Called with the reason when an agent's notification was not delivered. */
  readonly onLost?: (reason: string) => void
  readonly onSessionEnd?: UpstreamSessionsOptions['onEnd'] | undefined
  /** Counts calls in progress, at all servers, whose agents have left. */
  readonly load?: { detached: number } | undefined
}

/** A running entry of the registry: its catalog, replicas and upstream sessions. */
export class Server extends KnownServer {
  readonly connection: string
  readonly tasks: TaskBinding | undefined
  /** The identity of each replica's endpoint. */
  readonly endpoints: readonly string[]
  readonly upstreamSessions: UpstreamSessions
  /** The findings of probes; empty with `health: false`. */
  readonly health: ServerHealth
  /** Sends a call over its caller's upstream session, opened if needed. */
  readonly send: Service
  /** Records attempts that faults ended before `send`. */
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
    // Getters, because `reconfigure` may change the config later.
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
          // A server may have two discoveries: only the discovery with health probes calls the tool.
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
        // Any answer is a sign of life, and a slow tool is no outage.
        if (reason !== 'upstream_unavailable' && reason !== 'upstream_disconnected') return
        health.sign()
        this.#discovery.suspect()
      },
    })
    this.send = sendOver({ ...sending(false), clock, answered: () => this.#discovery.answered() })
    this.faultedAttempts = new FaultedAttempts(sending(true))
  }

  /** The detected transport behind each URL; undefined if configured or not detected yet. */
  get transports(): readonly (KnownTransport | undefined)[] {
    return this.#replicas.map((replica) => replica.transport?.())
  }

  /** Returns the transport to a replica, detected or configured. */
  transportAt(replica = 0): ServerConfig['type'] {
    return this.transports[replica]?.transport === 'sse' ? 'sse' : this.config.type
  }

  get eras(): readonly Eras[] {
    return this.#replicas.map((replica) => replica.eras?.() ?? {})
  }

  /** Returns the era of a caller's upstream session with a replica; without a session the expected era, if known. */
  eraFor(caller: Caller, replica: number | undefined): Era | undefined {
    const said = this.upstreamSessions.current(caller, replica)?.upstreamSession.initializeResult.value
      .protocolVersion
    if (said !== undefined) return said === MODERN_VERSION ? 'modern' : 'legacy'
    const eras = this.eras[replica ?? 0] ?? {}
    const own = caller.era
    return [own, otherEra(own)].find((era) => eras[era]?.speaks)
  }

  /** The era of all callers' upstream sessions; undefined when the era depends on the caller, or is unknown. */
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
   * Returns a caller's upstream session, opened if needed. Waits at most `limitMs`; undefined: 60 s with processes to
   * start, else unlimited. Rejects with a `GatewayError`.
   */
  async converse(caller: Caller, limitMs?: Millis): Promise<BoundSession> {
    const longestMs = this.upstreamSessions.startsProcesses ? LONGEST_START_MS : undefined
    const ms = limitMs ?? longestMs
    if (ms === undefined) return this.upstreamSessions.soon(caller)
    const limit = new Cancellation()
    const opening = this.#afterPauses(caller, limit)
    const cancel = this.#clock.after(Math.min(ms, LONGEST_TIMER_MS), () => {
      const error = gatewayError(
        'deadline_exceeded',
        `the server did not finish the handshake within ${formatDuration(ms)}`,
      )
      limit.abort(whileStarting(error, this.upstreamSessions.starting(caller)))
    })
    return orAborted(opening, limit).finally(cancel)
  }

  /** Opens an upstream session. Waits for the restart of a crashed process, like calls. */
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

  /** Returns the replica that keeps state for a caller; undefined when there is none. */
  home(caller: Caller): number | undefined {
    return this.upstreamSessions.home(caller)
  }

  /** Returns the number of callers with state at each replica; undefined when the server keeps no state of a caller. */
  homes(caller: Caller): readonly number[] | undefined {
    return this.upstreamSessions.homes(caller)
  }

  /** The client for plain HTTP, usable while the server is retained; undefined without `passthrough: true`. */
  get plainHttp(): PlainHttp | undefined {
    const { config } = this
    if (config.type === 'stdio' || !config.passthrough) return undefined
    return (this.#plainHttp ??= openPlainHttp(config))
  }

  /** Why the server is not well, by the latest probe, else by the error that keeps the server down. */
  get failureReason(): FailureReason | undefined {
    return this.health.failure?.reason ?? (this.error && failureReasonOf(this.error))
  }

  /** Whether the gateway may silently replace a caller's session. */
  get mayMove(): boolean {
    return this.config.type !== 'http' || this.config.sessionRecovery === 'transparent'
  }

  /** Detaches a caller from its upstream session with a replica; its next call opens another, maybe elsewhere. */
  leave(caller: Caller, replica: number): void {
    this.upstreamSessions.leave(caller, replica)
  }

  /** Returns when a lost replica was last found reachable again, on the monotonic clock. */
  backAt(replica: number): number {
    return this.#reachability.backAt(replica)
  }

  /** Whether a replica is known to be unreachable now. */
  isLost(replica: number): boolean {
    return this.#reachability.isLost(replica)
  }

  /** Resolves when a replica accepts requests; see `Reachability.reached`. */
  reached(replica: number): Promise<boolean> | undefined {
    return this.#reachability.reached(replica)
  }

  start(): void {
    this.#discovery.run()
    if (!this.upstreamSessions.startsProcesses) return
    this.#cancelSettling = this.#clock.after(this.config.timeouts.discovery, () => this.settle())
  }

  /** The process start awaited by discovery; undefined without such a start. */
  get starting(): Starting | undefined {
    return this.upstreamSessions.starting(this.#discovery)
  }

  /** Starts the legacy view for the first legacy agent, if the server's lists may differ in the legacy era. */
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
   * Applies a changed entry of equal `connection`. Keeps the connections and the catalog. Tells agents when the visible
   * tools change.
   */
  reconfigure(entry: ServerConfig): void {
    if (entry === this.config) return
    const { health, refresh, timeouts } = this.config
    const before = this.entries('tools')
    this.follow(entry)
    for (const replica of this.#replicas) replica.follow?.(entry)
    if (entry.health === false) this.health.forget()
    // With the new times, the next round may be due at once.
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

  /** Tells agents of this server's own endpoint about changed lists, when the change was not made by the server. */
  announce(changed: readonly ListKind[]): void {
    for (const method of new Set(changed.map((kind) => kinds[kind].changed))) {
      const message = { text: notificationText(method), value: { jsonrpc: '2.0', method } }
      for (const caller of this.upstreamSessions.callers())
        if (!(caller instanceof Discovery)) caller.receive(this.name, message)
    }
  }

  /** Ends discovery and probes of a removed or replaced server. Calls in flight continue. */
  retire(): void {
    this.#cancelSettling()
    this.#discovery.stop()
    this.#legacyView.stop()
    this.#reachability.stop()
    this.endGrace()
    void this.upstreamSessions.drop(this.#discovery)
  }

  /** Fetches the server's lists again soon; `greetsAnew`: see `Discovery.refresh`. */
  refresh({ greetsAnew = false } = {}): void {
    this.#discovery.refresh({ greetsAnew })
    this.#legacyView.look({ all: true, greetsAnew })
  }

  /** Number of running processes; undefined for servers without processes. */
  get processes(): number | undefined {
    const counts = this.#replicas.flatMap((replica) => replica.processes?.() ?? [])
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count)
  }

  /** Signals the server's processes; false without processes. */
  signal(name: NodeJS.Signals): boolean {
    return this.#replicas.map((replica) => replica.signal?.(name) === true).includes(true)
  }

  /** Ends the server's processes, and each process started during the loop; see `Upstream.crash`. */
  crash(loop: CrashLoop): void {
    for (const replica of this.#replicas) replica.crash?.(loop)
  }

  /** Reads bytes as if written by the server's processes; see `Upstream.write`. Undefined without processes. */
  write(bytes: Buffer, over: Signal): Promise<void> | undefined {
    const writing = this.#replicas.flatMap((replica) => replica.write?.(bytes, over) ?? [])
    return writing.length === 0 ? undefined : Promise.all(writing).then(() => undefined)
  }

  /** Counts another user, such as a generation. */
  retain(): void {
    this.#holders++
  }

  /** Removes a user; closes the server after the last user. */
  release(): void {
    if (--this.#holders === 0) void this.close()
  }

  /** Retains the server for work without a waiting agent. Returns the release function; call it once. */
  hold(): () => void {
    this.retain()
    this.#load.detached++
    return () => {
      this.#load.detached--
      this.release()
    }
  }

  /** Ends the server's upstream sessions and processes. Idempotent. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.retire()
    // In parallel, because each may use its grace period. Replicas wait for their own sessions.
    await Promise.all([
      this.upstreamSessions.closeAll(),
      ...this.#replicas.map((replica) => replica.close()),
      this.#plainHttp?.pool.destroy(),
    ])
  }
}

/** Returns the settings of probes; the defaults with `health: false`. */
function healthOf({ health }: ServerConfig): ServerHealthConfig {
  return health === false ? unwatched : health
}

const unwatched = serverHealth.parse({})
