import type { ServerConfig } from '../../config/schema/schema.ts'
import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import type { Caller, Layer } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { CrashLoop } from '../../mesh/wire-shape.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { Era } from '../../protocol/versions.ts'
import type { Log } from '../../telemetry/log.ts'
import { waitDuration } from '../../units/duration.ts'
import { abortError, orAborted, whenAborted } from '../failure.ts'
import { modernSharedSession } from '../modern/shared-session.ts'
import { ToolCallRules } from '../modern/tool-call-rules.ts'
import { openError } from '../pipe/handshake.ts'
import { MessageSession } from '../pipe/message-session.ts'
import type { Connect } from '../pipe/pipe.ts'
import { soloAudience } from '../shared/audience.ts'
import { RememberedSession } from '../shared/remembered-session.ts'
import { SessionStates } from '../shared/session-state.ts'
import { SharedConnection } from '../shared/shared-connection.ts'
import { type Conceal, concealing } from '../server-words.ts'
import type { Eras, Starting, StartLimits, UpstreamSession, Upstream } from '../upstream.ts'
import { Children, type ProcessLimit } from './children.ts'
import { Experience, Start, type StartProcess } from './start.ts'

export interface StdioOptions {
  readonly server: string
  readonly config: StdioServerConfig
  /** The gateway's own `initialize` params, for a shared process. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly clock: Clock
  readonly log: Log
  /** Called for each process refused by a limit; optional. */
  readonly refused?: (limit: ProcessLimit) => void
  /** Called when nobody gets a shared process's request because of an open task or an abandoned call; optional. */
  readonly withheld?: () => void
  /** Faults of the handshakes and pings of upstream sessions; optional. */
  readonly faults?: Layer | undefined
}

/** A server run as a child process: one for all callers, or one for each. */
export class StdioUpstream implements Upstream {
  readonly #options: StdioOptions
  #config: StdioServerConfig
  readonly #log: Log
  readonly #upstreamSessions = new Set<MessageSession | SharedConnection>()
  readonly #children: Children
  readonly #restarts: Restarts
  readonly #tools = new ToolCallRules()
  readonly #spoken: ProgramEra
  readonly #experience = new Experience()
  readonly #states = new SessionStates()
  readonly #conceal: Conceal
  /**
   * The shared connection, running or starting. An abandoned start continues, since the process may be installing a
   * program.
   */
  #shared: Promise<SharedConnection> | undefined
  /** Why the gateway's own last start failed, until another start succeeds; not caused by an agent. */
  #gatewaysFailure: GatewayError | undefined

  constructor(options: StdioOptions) {
    const { server, config, clock } = options
    const log = options.log.child({ server })
    this.#options = options
    this.#config = config
    this.#log = log
    const { refused = () => undefined } = options
    const limits = () => ({ ...this.#config.processes, key: `mcpServers.${server}.processes`, refused })
    const conceal = concealing(config)
    this.#conceal = conceal
    this.#children = new Children(config, limits, {
      maxReply: () => this.#config.maxReply,
      clock,
      log,
      conceal,
    })
    this.#restarts = new Restarts(clock, log)
    this.#spoken = new ProgramEra(config.era, clock)
  }

  follow(config: ServerConfig): void {
    if (config.type === 'stdio') this.#config = config
  }

  eras(): Eras {
    return this.#spoken.eras
  }

  async open(
    caller: Caller,
    signal: Signal,
    limits: StartLimits = limitsIn(this.#config),
  ): Promise<UpstreamSession> {
    if (signal.aborted) throw abortError(signal)
    this.#children.assertOpen()
    const session =
      this.#config.sharing === 'shared'
        ? await this.#join(caller, signal, limits)
        : await this.#openFor(caller, signal, limits)
    const { server, clock } = this.#options
    const terms = { server, clock, log: this.#log }
    return RememberedSession.tell(session, this.#states.of(caller), terms, signal)
  }

  starting(caller: Caller): Starting | undefined {
    if (this.#config.sharing === 'shared') return this.#restarts.starting(this)
    const own = this.#restarts.starting(caller)
    return own && { ...own, failure: own.failure ?? this.#gatewaysFailure }
  }

  close(): Promise<void> {
    const closing = this.#children.close()
    // Closes the sessions before the processes end: the end of a closed upstream session does not count as a crash.
    for (const upstreamSession of this.#upstreamSessions) void upstreamSession.close()
    return closing
  }

  processes(): number {
    return this.#children.size
  }

  signal(name: NodeJS.Signals): boolean {
    return this.#children.signal(name)
  }

  crash(loop: CrashLoop): void {
    this.#children.crash(loop)
  }

  write(bytes: Buffer, over: Signal): Promise<void> | undefined {
    return this.#children.write(bytes, over)
  }

  async #openFor(caller: Caller, signal: Signal, limits: StartLimits): Promise<UpstreamSession> {
    const { server, clock, faults } = this.#options
    const { client } = caller
    this.#children.assertRoom(client)
    const terms = {
      server,
      initializeParams: caller.initializeParams,
      audience: soloAudience(server, caller),
      clock,
      log: this.#log,
      conceal: this.#conceal,
      faults,
    }
    const upstreamSession = await this.#start(
      caller,
      this.#newStart(limits, signal),
      this.#children.startFor(client),
      (connect, era, whole) => MessageSession.open(connect, { ...terms, era }, whole),
    ).catch((failure: GatewayError) => {
      if (client === undefined) this.#gatewaysFailure = this.#restarts.failureOf(caller)
      throw failure
    })
    this.#gatewaysFailure = undefined
    if (upstreamSession.discover === undefined) return upstreamSession
    const session = modernSharedSession(
      upstreamSession,
      upstreamSession.discover,
      { server, clock, tools: this.#tools, states: this.#states },
      caller,
    )
    whenAborted(session.ended, () => void upstreamSession.close())
    return session
  }

  async #join(caller: Caller, signal: Signal, limits: StartLimits): Promise<UpstreamSession> {
    this.#shared ??= this.#startShared(limits)
    const shared = await orAborted(this.#shared, signal)
    if (shared.ended.aborted) throw openError(shared.ended.reason)
    return shared.attach(caller)
  }

  #startShared(limits: StartLimits): Promise<SharedConnection> {
    const { server, initializeParams, clock, faults, withheld } = this.#options
    const terms = {
      withheld,
      server,
      initializeParams,
      clock,
      log: this.#log,
      conceal: this.#conceal,
      faults,
      tools: this.#tools,
      states: this.#states,
    }
    const forget = () => (this.#shared = undefined)
    const opening = this.#start(
      this,
      this.#newStart(limits),
      this.#children.startFor(undefined),
      (connect, era, whole) => SharedConnection.open(connect, { ...terms, era }, whole),
    )
    opening.then((upstreamSession) => whenAborted(upstreamSession.ended, forget), forget)
    return opening
  }

  #newStart(limits: StartLimits, signal?: Signal): Start {
    const { server, clock } = this.#options
    const key = `mcpServers.${server}.timeouts`
    return new Start({ key, limits, experience: this.#experience, clock }, signal)
  }

  async #start<Held extends MessageSession | SharedConnection>(
    owner: object,
    start: Start,
    startProcess: StartProcess,
    open: (connect: Connect, era: Era | 'auto', signal: Signal) => Promise<Held>,
  ): Promise<Held> {
    const upstreamSession = await this.#restarts.open(owner, start, () =>
      this.#spoken.open(start.watch(startProcess), (connect, era) => open(connect, era, start.signal)),
    )
    this.#upstreamSessions.add(upstreamSession)
    whenAborted(upstreamSession.ended, () => this.#upstreamSessions.delete(upstreamSession))
    return upstreamSession
  }
}

function limitsIn({ timeouts }: StdioServerConfig): StartLimits {
  return { startMs: timeouts.start, handshakeMs: timeouts.discovery }
}

/** The knowledge about the processes of an owner: a caller, or all callers together. */
interface Owned {
  readonly gate: RestartGate
  /** Why the last start failed; undefined after a success. */
  failure: GatewayError | undefined
  /** The error of the last crash or failed start. */
  ended: GatewayError | undefined
  start: Start | undefined
}

/** Starts processes, with a pause after a crash. */
export class Restarts {
  readonly #clock: Clock
  readonly #log: Log
  /** By owner: a caller, or all callers together. Weak, so an entry lives no longer than its owner. */
  readonly #owned = new WeakMap<object, Owned>()

  constructor(clock: Clock, log: Log) {
    this.#clock = clock
    this.#log = log
  }

  /** Returns why the last start for `owner` failed; undefined after a success. */
  failureOf(owner: object): GatewayError | undefined {
    return this.#owned.get(owner)?.failure
  }

  /** Returns the start under way for `owner`; undefined without a start. */
  starting(owner: object): Starting | undefined {
    const { start, failure } = this.#owned.get(owner) ?? {}
    return start && { forMs: start.forMs, told: start.told, failure }
  }

  /**
   * Opens a session with a process for `owner`. Rejects with a `GatewayError`; during a pause with a `retryAfterMs`.
   */
  async open<Held extends { readonly ended: AbortSignal; readonly hasWorked: boolean }>(
    owner: object,
    start: Start,
    open: () => Promise<Held>,
  ): Promise<Held> {
    const owned = this.#ownedBy(owner)
    const retryAfterMs = Math.ceil(owned.gate.waitMs)
    if (retryAfterMs > 0) throw notBefore(owned, retryAfterMs)
    owned.gate.started()
    owned.start = start
    try {
      const held = await open()
      start.end(true)
      owned.failure = undefined
      whenAborted(held.ended, (error) => {
        if (error.reason !== 'cancelled') this.#crashed(owned, error, held.hasWorked)
      })
      return held
    } catch (error) {
      start.end(false)
      const failure = error as GatewayError
      owned.failure = failure
      throw { ...this.#crashed(owned, failure), notStarted: true }
    } finally {
      owned.start = undefined
    }
  }

  #crashed(owned: Owned, error: GatewayError, hasWorked = false): GatewayError {
    const { gate } = owned
    gate.crashed(hasWorked)
    owned.ended = error
    const retryAfterMs = Math.ceil(gate.waitMs)
    this.#log.warn({ reason: error.reason, retryAfterMs }, error.message)
    return { ...error, retryAfterMs }
  }

  #ownedBy(owner: object): Owned {
    const owned = this.#owned.get(owner) ?? {
      gate: new RestartGate(this.#clock),
      failure: undefined,
      ended: undefined,
      start: undefined,
    }
    this.#owned.set(owner, owned)
    return owned
  }
}

/** Returns why no process starts now. Calls may wait for a restart after a crash, but not after a failed start. */
function notBefore({ failure, ended }: Owned, retryAfterMs: Millis): GatewayError {
  const why = (failure ?? ended)?.message ?? "the server's process ended"
  const message = `${why}; it is not started again before ${waitDuration(retryAfterMs)} have passed`
  const error = gatewayError('upstream_unavailable', message, {
    retryAfterMs,
    cause: failure?.cause ?? 'process_exit',
  })
  return failure === undefined ? error : { ...error, notStarted: true }
}

/** Pause after the first crash, in milliseconds; doubles with each further crash. */
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 30_000

/** A process with at least this uptime was in no crash loop, in milliseconds. */
const STABLE_MS = 30_000

/** Says when a crashed process may restart. Does not wait itself. */
export class RestartGate {
  readonly #clock: Clock
  #startedAt: Millis = 0
  #pauseMs: Millis = 0
  #opensAt: Millis = -Infinity

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Remaining wait before the next start, in milliseconds; 0 when a start may begin. */
  get waitMs(): Millis {
    return Math.max(0, this.#opensAt - this.#clock.now())
  }

  started(): void {
    this.#startedAt = this.#clock.now()
  }

  /** Notes a crash or a failed handshake. A process with an answered tool call was in no crash loop. */
  crashed(hasWorked = false): void {
    const now = this.#clock.now()
    const stable = hasWorked || now - this.#startedAt >= STABLE_MS
    this.#pauseMs =
      stable || this.#pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    this.#opensAt = now + this.#pauseMs
  }
}

interface Held {
  readonly era: Era
}

interface SpokenEra extends Held {
  readonly decidedBy: 'config' | 'probe'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** The era of a program while the gateway runs it, found with the first process. A process has a single era. */
class ProgramEra {
  readonly #era: Era | 'auto'
  readonly #clock: Clock
  #known: SpokenEra | undefined

  /** With `auto`, the gateway asks the server. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#era = era
    this.#clock = clock
    if (era !== 'auto') this.#known = { era, decidedBy: 'config', at: clock.wall() }
  }

  get eras(): Eras {
    if (this.#known === undefined) return {}
    const { era, decidedBy, at } = this.#known
    return { [era]: { speaks: true, decidedBy, at } }
  }

  /**
   * Calls `open` with the program's era. If the process ends at the first request, starts it once more, in the legacy
   * era.
   */
  async open<Opened extends Held>(
    connect: Connect,
    open: (connect: Connect, era: Era | 'auto') => Promise<Opened>,
  ): Promise<Opened> {
    const legacy = this.#known?.era === 'legacy'
    const era = this.#era === 'auto' && legacy ? 'legacy' : this.#era
    let started = false
    const noting: Connect = async (events, signal) => {
      const pipe = await connect(events, signal)
      started = true
      return pipe
    }
    try {
      return this.#learn(await open(noting, era))
    } catch (error) {
      if (this.#known?.decidedBy !== 'config') this.#known = undefined
      const ended = started && (error as GatewayError).reason === 'upstream_unavailable'
      if (era !== 'auto' || !ended) throw error
    }
    return this.#learn(await open(connect, 'legacy'))
  }

  #learn<Opened extends Held>(upstreamSession: Opened): Opened {
    const { era } = upstreamSession
    if (this.#known?.era !== era) this.#known = { era, decidedBy: 'probe', at: this.#clock.wall() }
    return upstreamSession
  }
}
