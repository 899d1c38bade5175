import type { ProbeTool } from '../config/schema/health-schema.ts'
import { type Answer, type Call, type Caller, type Layer, type Message, newRecord } from '../mesh/call.ts'
import { ignore, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError, isGatewayError, type Reason } from '../mesh/errors.ts'
import { isHit } from '../mesh/classify.ts'
import { about, injectedBy, makersOf } from '../mesh/injected.ts'
import { errorText, isObject, METHOD_NOT_FOUND, requestText, resultText } from '../protocol/jsonrpc.ts'
import { type Era, MODERN_VERSION } from '../protocol/versions.ts'
import { printableWords } from '../telemetry/printable.ts'
import type { Conceal } from '../upstreams/server-words.ts'
import { orAborted, within } from '../upstreams/failure.ts'
import type { UpstreamSession } from '../upstreams/upstream.ts'
import { formatDuration } from '../units/duration.ts'
import {
  type Ask,
  type Catalog,
  emptyCatalog,
  type CatalogEntry,
  type Fetched,
  fetchList,
} from './catalog.ts'
import {
  type Probe,
  type ProbeFailure,
  failureReasonOf,
  Probing,
  type ProbeRound,
  wrongIn,
} from './health/probe.ts'
import { kinds, type ListKind, listKinds } from '../protocol/lists.ts'
import type { UpstreamSessions } from '../upstreams/sessions.ts'

export interface DiscoveryOptions {
  readonly server: string
  readonly upstreamSessions: UpstreamSessions
  /** The era of requests to servers of both eras; default: modern. */
  readonly era?: Era
  /** Removes secrets from the server's words. */
  readonly conceal: Conceal
  /** The `initialize` params of the gateway itself. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** Faults hit requests of discovery, too. */
  readonly faults: Layer
  /** Returns the names of faults now holding a handshake with the server. */
  readonly heldBy: () => readonly string[]
  readonly clock: Clock
  /** Timeout of a round: handshake and lists, without the start of a process. Getters, as settings may change. */
  readonly timeoutMs: Millis
  /** Interval between full rounds while the server is up. */
  readonly refreshMs: Millis
  /** Most bytes kept of each list. */
  readonly maxList: number
  /** Pause until the next probe while the server is up. */
  readonly probeMs: Millis
  /** Timeout of a ping and of the tool call; at most `timeoutMs`. */
  readonly pingMs: Millis
  /** The tool to call in each round, after the server is up. */
  readonly tool?: ProbeTool | undefined
  /** Called when a round has succeeded. */
  readonly onUp: (catalog: Catalog, initializeResult: Message) => void
  /** Called when the server has announced a changed list; the next round fetches the list. */
  readonly onStale: () => void
  /** Called when faults that had changed the catalog have ended. Passes the last catalog without faults. */
  readonly onReverted: (catalog: Catalog) => void
  /** Called when a round has failed. */
  readonly onDown: (error: GatewayError) => void
  /** Called last in a round, with its findings about the server's health. */
  readonly onProbe?: (probe: Probe) => void
  /** Called when the session has ended by itself, maybe because of trouble at the server. */
  readonly onSign?: () => void
}

/** Failures of a ping or list that may only mean a missing method. Other requests then show the server's health. */
const refusals: ReadonlySet<string> = new Set<Reason>(['upstream_refused', 'upstream_status', 'bad_reply'])

/** Stops pinging after so many unanswered pings in a row, each followed by a successful list. */
const MOST_SILENT_PINGS = 2

/** Pause after a failed round, in milliseconds, doubling from first to last. */
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 30_000

/** Longest pause a server can ask for, in milliseconds: a single reply must not hide the server for a day. */
const LONGEST_ASKED_MS = 300_000

/** Several `list_changed` notifications within this time, in milliseconds, cause a single round. */
const COALESCE_MS = 250

/** After so many rounds for changed lists, each further round doubles `COALESCE_MS`. */
const MOST_CHANGES = 10

/**
 * One counted round is forgotten in each such time, in milliseconds. A list that changes all the time is fetched about
 * this often.
 */
const FORGOTTEN_MS = 5_000

/**
 * Keeps a server's catalog current: fetches the lists at the start, at each `list_changed`, and at intervals. Pings in
 * between, and calls a health-check tool if configured. Retries a down server with a doubling pause. Each round is a
 * health probe. Runs in the background, so no agent and no other server waits.
 */
export class Discovery implements Caller {
  readonly id: string
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly listening = true
  /** The modern era keeps the catalog as the servers wrote their lists. */
  readonly era: Era
  readonly #options: DiscoveryOptions
  readonly #questions: Questions
  readonly #lists: Lists
  readonly #rounds: Rounds
  readonly #probing: Probing
  readonly #watched = new WeakSet<UpstreamSession>()
  #retryMs: Millis = FIRST_RETRY_MS
  /**
   * While the server is down: when the gateway's own pause ends, on the monotonic clock. The server may ask for a
   * longer pause.
   */
  #dueAt: Millis | undefined
  #refresh: Refresh | undefined
  /** Whether faults may have changed the handshake of the open session. The next round then checks the session. */
  #greetsAnew = false
  /** Unanswered pings in a row, each followed by a successful list. */
  #silentPings = 0
  /** The error of the latest unanswered ping. */
  #silence: GatewayError | undefined

  constructor(options: DiscoveryOptions) {
    const { server, initializeParams, clock, faults, era = 'modern' } = options
    this.id = `discovery:${server}:${era}`
    this.era = era
    this.initializeParams = initializeParams
    this.#options = options
    this.#questions = new Questions(server, this, clock, faults, options.conceal)
    this.#probing = new Probing(clock, (probe) => {
      if (!this.#rounds.stopped) options.onProbe?.(probe)
    })
    this.#lists = new Lists(
      clock,
      () => options.refreshMs,
      () => options.maxList,
    )
    this.#rounds = new Rounds(clock, () => this.#round())
  }

  /** Starts a round at once: at the start, after a restart, or on suspicion. */
  run(): void {
    this.#rounds.within(0)
  }

  /**
   * Fetches all lists again now, because the catalog may be wrong. `greetsAnew`: over a new session, if faults changed
   * the handshake of the open session.
   */
  refresh({ greetsAnew = false } = {}): void {
    if (this.#rounds.stopped) return
    this.#greetsAnew ||= greetsAnew
    if (this.#lists.revert()) this.#options.onReverted(this.#lists.catalog)
    this.#lists.doubt()
    this.#refresh ??= newRefresh()
    this.#refresh.begun = false
    this.#rounds.within(0)
  }

  /** Resolves when the round of the last `refresh` has ended, successful or not; at once without such a round. */
  get refreshed(): Promise<void> {
    return this.#refresh?.over ?? Promise.resolve()
  }

  /** Starts a round now, after a call could not reach the server. Does nothing during a round. */
  suspect(): void {
    if (!this.#rounds.running && this.#retryMs === FIRST_RETRY_MS) this.#rounds.within(0)
  }

  /**
   * Called when the server has answered a call. A down server may be up again, so the next round skips the pause the
   * server asked for. The round still waits for our own pause, because some servers answer agents but refuse probes.
   */
  answered(): void {
    if (this.#dueAt === undefined || this.#rounds.running) return
    this.#rounds.within(Math.max(0, this.#dueAt - this.#options.clock.now()))
  }

  stop(): void {
    this.#rounds.stop()
    this.#endRefresh()
  }

  #endRefresh(): void {
    this.#refresh?.end()
    this.#refresh = undefined
  }

  receive(_: string, message: Message, answer?: Answer): void {
    // Ignores failures to answer: the next round finds trouble of the server.
    if (answer !== undefined) return void answer(defaultReply(message)).catch(ignore)
    if (!this.#lists.hear(message)) return
    this.#options.onStale()
    this.#rounds.within(this.#lists.patienceMs)
  }

  /** Runs a round; resolves to the pause before the next. */
  async #round(): Promise<Millis> {
    if (this.#refresh !== undefined) this.#refresh.begun = true
    if (this.#greetsAnew) await this.#greetAnew()
    if (this.#rounds.stopped) return 0
    const delayMs = await this.#look()
    if (this.#refresh === undefined) return delayMs
    // A refresh requested during the round needs another round at once.
    if (!this.#refresh.begun) return 0
    this.#endRefresh()
    return delayMs
  }

  /** Ends the session if faults may have changed its handshake. Without a session, a later round checks again. */
  async #greetAnew(): Promise<void> {
    const { upstreamSessions, clock, timeoutMs } = this.#options
    const upstreamSession = upstreamSessions.current(this)?.upstreamSession
    if (upstreamSession === undefined) return
    this.#greetsAnew = false
    const { value } = upstreamSession.initializeResult
    const isModern = value.protocolVersion === MODERN_VERSION
    if (!isModern && makersOf(value).length === 0) return
    this.#lists.doubt()
    const never = new AbortController().signal
    const ping = (limit: Signal) => this.#questions.ping(upstreamSession, limit)
    // In the modern era all sessions share a cached answer for a while: a ping asks the server for a new answer.
    if (isModern) await within(timeoutMs, clock, never, ping).catch(ignore)
    await upstreamSessions.drop(this)
  }

  async #look(): Promise<Millis> {
    const { upstreamSessions, clock } = this.#options
    const { startsProcesses } = upstreamSessions
    const { limit, key } = this.#limit()
    const round = this.#probing.begin()
    const over = new AbortController()
    const tookTooLong = () => {
      const message = `discovery took longer than ${formatDuration(limit)} (${key})`
      over.abort(gatewayError('attempt_timeout', message, { sent: true }))
    }
    let cancel = startsProcesses ? () => undefined : clock.after(limit, tookTooLong)
    let isOpening = true
    try {
      const opening = () => orAborted(upstreamSessions.of(this), over.signal)
      const isOpen = upstreamSessions.current(this) !== undefined
      const { upstreamSession } = await (isOpen ? opening() : round.step('open', opening))
      isOpening = false
      if (startsProcesses) cancel = clock.after(limit, tookTooLong)
      this.#watch(upstreamSession)
      await this.#ask(upstreamSession, over.signal, round)
      this.#retryMs = FIRST_RETRY_MS
      this.#dueAt = undefined
      if (!this.#rounds.stopped) this.#options.onUp(this.#lists.catalog, upstreamSession.initializeResult)
      cancel()
      round.end(await this.#askTool(upstreamSession, round))
      return this.#greetsAnew ? 0 : this.#options.probeMs
    } catch (error) {
      return await this.#failed(isOpening ? this.#notOpened(error) : error, round)
    } finally {
      cancel()
    }
  }

  /**
   * Returns a handshake's timeout error with the names of the faults that still hold the handshake; other errors
   * unchanged.
   */
  #notOpened(cause: unknown): unknown {
    if (!isGatewayError(cause) || cause.reason !== 'attempt_timeout' || cause.injected !== undefined)
      return cause
    return { ...cause, injected: this.#options.heldBy() } satisfies GatewayError
  }

  /** Returns the timeout of a round, and the config key of the timeout. */
  #limit(): { readonly limit: Millis; readonly key: string } {
    const { server, timeoutMs, pingMs, upstreamSessions } = this.#options
    const isPing = this.#lists.fresh && upstreamSessions.current(this) !== undefined
    return isPing && pingMs < timeoutMs
      ? { limit: pingMs, key: `mcpServers.${server}.health.every` }
      : { limit: timeoutMs, key: `mcpServers.${server}.timeouts.discovery` }
  }

  #ask(upstreamSession: UpstreamSession, signal: Signal, round: ProbeRound): Promise<void> {
    if (this.#lists.fresh) return round.step('ping', () => this.#ping(upstreamSession, signal))
    const ask = this.#questions.over(upstreamSession, signal)
    const fetching = () => this.#lists.fetch(upstreamSession.initializeResult, ask, this.#questions)
    return round.step('list', fetching)
  }

  /** Checks a server by a ping, or by a list if pings fail. Rejects with a `GatewayError`. */
  async #ping(upstreamSession: UpstreamSession, signal: Signal): Promise<void> {
    const questions = this.#questions
    if (this.#silentPings < MOST_SILENT_PINGS) {
      const { touched } = questions
      try {
        await questions.ping(upstreamSession, signal)
        this.#silentPings = 0
        return
      } catch (cause) {
        const error = errorOf(cause)
        const isFaulted = questions.touched > touched
        if (error.reason === 'attempt_timeout' && !isFaulted) this.#silence = error
        if (isFaulted || !refusals.has(error.reason)) throw error
      }
    }
    await questions.look(upstreamSession, signal)
  }

  /** Calls the configured tool. A failure counts for the server's health only; the server stays up. */
  async #askTool(upstreamSession: UpstreamSession, round: ProbeRound): Promise<ProbeFailure | undefined> {
    const { tool, clock, timeoutMs, pingMs } = this.#options
    if (tool === undefined) return undefined
    const never = new AbortController().signal
    try {
      return await round.step('tool', () =>
        within(Math.min(pingMs, timeoutMs), clock, never, async (limit) =>
          wrongIn(await this.#questions.tool(upstreamSession, tool, limit), tool, this.#options.conceal),
        ),
      )
    } catch (error) {
      const wrong = errorOf(error)
      return { reason: failureReasonOf(wrong), message: `tool ${tool.name}: ${named(wrong).message}` }
    }
  }

  async #failed(cause: unknown, round: ProbeRound): Promise<Millis> {
    const original = errorOf(cause)
    const error = named(original)
    this.#silentPings = original === this.#silence ? this.#silentPings + 1 : 0
    this.#lists.doubt()
    if (!this.#rounds.stopped) this.#options.onDown(error)
    const delayMs = Math.max(Math.min(error.retryAfterMs ?? 0, LONGEST_ASKED_MS), this.#retryMs)
    // With a pause longer than the probe interval, a second probe would come too late to confirm the failure.
    const isCertain = delayMs > this.#options.pingMs && delayMs > LAST_RETRY_MS
    round.end({ reason: failureReasonOf(error), message: error.message, isCertain })
    await this.#options.upstreamSessions.drop(this)
    // The pause overrides rounds requested meanwhile, such as by the end of the upstream session.
    this.#rounds.forget()
    this.#dueAt = this.#options.clock.now() + this.#retryMs
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
    return delayMs
  }

  /** Starts a round when the upstream session ends by itself, at most once per `FIRST_RETRY_MS`. */
  #watch(upstreamSession: UpstreamSession): void {
    if (this.#watched.has(upstreamSession)) return
    this.#watched.add(upstreamSession)
    const { clock } = this.#options
    const from = clock.now()
    const ended = () => {
      const { reason } = upstreamSession.ended as { reason: GatewayError }
      if (reason.reason !== 'cancelled') this.#options.onSign?.()
      this.#probing.ended(reason)
      this.#rounds.within(Math.max(0, from + FIRST_RETRY_MS - clock.now()))
    }
    upstreamSession.ended.addEventListener('abort', ended, { once: true })
  }
}

const errorOf = (cause: unknown): GatewayError =>
  isGatewayError(cause) ? cause : gatewayError('internal', 'discovery failed')

/** Adds names of faults to an error for operators, so the server does not look broken. */
function named(error: GatewayError): GatewayError {
  const { message, injected = [] } = error
  return injected.length === 0 ? error : { ...error, message: message + injectedBy(injected) }
}

/** A requested round with waiting callers. */
interface Refresh {
  readonly over: Promise<void>
  readonly end: () => void
  /** Whether the round has begun. A round begun before the request may have seen old lists. */
  begun: boolean
}

function newRefresh(): Refresh {
  let end = () => {}
  const over = new Promise<void>((resolve) => (end = resolve))
  return { over, end: () => end(), begun: false }
}

/** Whether a server with this `initialize` result offers a list. */
function isOffered(kind: ListKind, { value: { capabilities } }: Message): boolean {
  return isObject(capabilities) && kinds[kind].capability in capabilities
}

const nothing: Fetched = { entries: [], cut: undefined }

/** The lists of a server as fetched last, and the stale lists to fetch. */
class Lists {
  readonly #clock: Clock
  readonly #refreshMs: () => Millis
  readonly #limit: () => number
  readonly #stale = new Set<ListKind>()
  /** Start of the last fetch of all lists, on the monotonic clock. */
  #fetchedAt: Millis = -Infinity
  #catalog = emptyCatalog
  /** The last catalog without faults. */
  #untouched = emptyCatalog
  /** Fetches for changed lists, minus forgotten fetches, as of `#changesAt`. */
  #changes = 0
  #changesAt: Millis = 0

  /** `refreshMs`: lifetime of lists without a change notification; `limit`: most bytes kept of each list. */
  constructor(clock: Clock, refreshMs: () => Millis, limit: () => number) {
    this.#clock = clock
    this.#limit = limit
    this.#refreshMs = refreshMs
  }

  get catalog(): Catalog {
    return this.#catalog
  }

  get fresh(): boolean {
    return this.#stale.size === 0 && !this.#isOld(this.#clock.now())
  }

  /** Restores the last catalog without faults. Returns false when the catalog had no faults. */
  revert(): boolean {
    const differs = this.#catalog !== this.#untouched
    this.#catalog = this.#untouched
    return differs
  }

  /** Pause before fetching a changed list: a large list changing without end must not delay all else. */
  get patienceMs(): Millis {
    const excess = this.#recentChanges(this.#clock.now()) - MOST_CHANGES
    return COALESCE_MS * 2 ** Math.max(0, excess)
  }

  #recentChanges(now: Millis): number {
    return Math.max(0, this.#changes - (now - this.#changesAt) / FORGOTTEN_MS)
  }

  /** Marks all lists as stale. */
  doubt(): void {
    this.#fetchedAt = -Infinity
  }

  /** Marks announced lists as stale; false for a message other than `list_changed`. */
  hear({ value: { method } }: Message): boolean {
    const changed = listKinds.filter((kind) => kinds[kind].changed === method)
    for (const kind of changed) this.#stale.add(kind)
    return changed.length > 0
  }

  /**
   * Fetches the stale lists offered by a server with this `initialize` result. `faults` counts answers changed by
   * faults. Rejects with a `GatewayError`.
   */
  async fetch(initializeResult: Message, ask: Ask, faults: { readonly touched: number }): Promise<void> {
    const before = { touched: faults.touched, isUntouched: this.#catalog === this.#untouched }
    const stale = this.#takeStale()
    const hasTools = isOffered('tools', initializeResult)
    const era = initializeResult.value.protocolVersion === MODERN_VERSION ? 'modern' : 'legacy'
    const lists: Record<ListKind, readonly CatalogEntry[]> = { ...this.#catalog.lists }
    const cuts: Partial<Record<ListKind, string>> = { ...this.#catalog.cut }
    await Promise.all(
      stale.map(async (kind) => {
        const { entries, cut } = isOffered(kind, initializeResult)
          ? await fetchList(kind, ask, this.#limit(), era).catch(this.#lastKnown(kind, hasTools))
          : nothing
        lists[kind] = entries
        if (cut === undefined) Reflect.deleteProperty(cuts, kind)
        else cuts[kind] = cut
      }),
    )
    const cut = Object.keys(cuts).length === 0 ? {} : { cut: cuts }
    this.#catalog = { fetchedAt: this.#clock.wall(), lists, ...cut }
    const isWhole = before.isUntouched || stale.length === listKinds.length
    if (isWhole && faults.touched === before.touched) this.#untouched = this.#catalog
  }

  #takeStale(): readonly ListKind[] {
    const now = this.#clock.now()
    const all = this.#isOld(now)
    if (all) this.#fetchedAt = now
    else if (this.#stale.size > 0) {
      this.#changes = this.#recentChanges(now) + 1
      this.#changesAt = now
    }
    const stale = all ? listKinds : [...this.#stale]
    this.#stale.clear()
    return stale
  }

  #isOld(now: Millis): boolean {
    return now >= this.#fetchedAt + this.#refreshMs()
  }

  /** Keeps the last-known entries of a failed list, marked as cut: a server with working tools is up. */
  #lastKnown(kind: ListKind, hasTools: boolean): (cause: unknown) => Fetched {
    return (cause) => {
      if (
        kind !== 'tools' &&
        isGatewayError(cause) &&
        (cause.reason === 'bad_reply' || (hasTools && refusals.has(cause.reason)))
      )
        return { entries: this.#catalog.lists[kind], cut: named(cause).message }
      throw cause
    }
  }
}

/** The gateway's own requests to a server, with separate ids. */
class Questions {
  readonly #server: string
  readonly #caller: Caller
  readonly #clock: Clock
  readonly #faults: Layer
  readonly #conceal: Conceal
  #count = 0
  /** Number of answers changed by faults. */
  touched = 0

  /** `caller` receives the server's messages during a request. */
  constructor(server: string, caller: Caller, clock: Clock, faults: Layer, conceal: Conceal) {
    this.#faults = faults
    this.#conceal = conceal
    this.#server = server
    this.#caller = caller
    this.#clock = clock
  }

  /** Sends requests over an upstream session. An unknown method counts as an answer; other errors reject. */
  over(upstreamSession: UpstreamSession, signal: Signal): Ask {
    return async (method, params) => {
      const { text, value } = await this.#exchange(upstreamSession, method, params, signal)
      if (!isObject(value.error) || value.error.code === METHOD_NOT_FOUND) return { text, value }
      const said = value.error.message
      const words = printableWords(typeof said === 'string' ? this.#conceal(said) : said, 200)
      throw about(value.error, gatewayError('bad_reply', `${method} failed: ${words}`, { sent: true }))
    }
  }

  /** Pings the server. Any answer is a success, even an error. Rejects with a `GatewayError`. */
  async ping(upstreamSession: UpstreamSession, signal: Signal): Promise<void> {
    await this.#exchange(upstreamSession, 'ping', {}, signal)
  }

  /** Fetches the first offered list; does nothing without a list. Rejects with a `GatewayError`. */
  async look(upstreamSession: UpstreamSession, signal: Signal): Promise<void> {
    const kind = listKinds.find((kind) => isOffered(kind, upstreamSession.initializeResult))
    if (kind !== undefined) await this.over(upstreamSession, signal)(kinds[kind].method, {})
  }

  /** Calls a tool; a tool's own error counts as an answer. Rejects with a `GatewayError`. */
  async tool(
    upstreamSession: UpstreamSession,
    { name, arguments: given }: ProbeTool,
    signal: Signal,
  ): Promise<Readonly<Record<string, unknown>>> {
    const params = { name, arguments: given }
    return (await this.#exchange(upstreamSession, 'tools/call', params, signal, name)).value
  }

  async #exchange(
    upstreamSession: UpstreamSession,
    method: string,
    params: Readonly<Record<string, unknown>>,
    signal: Signal,
    tool?: string,
  ) {
    const send = this.#faults((call) => upstreamSession.exchange(call))
    const call = this.#call(method, params, signal, tool)
    const outcome = await send(call)
    if (isHit(call.record)) this.touched++
    if (outcome.kind !== 'answered') throw outcome.error
    return outcome.result
  }

  #call(
    method: string,
    params: Readonly<Record<string, unknown>>,
    signal: Signal,
    tool: string | undefined,
  ): Call {
    const id = `breakwater-discovery-${++this.#count}`
    const caller = this.#caller
    return {
      server: this.#server,
      method,
      tool,
      id,
      message: { text: requestText(id, method, params), value: { jsonrpc: '2.0', id, method, params } },
      headers: undefined,
      inbound: {},
      tenant: '',
      countsAs: '',
      caller,
      channel: {
        open: () => undefined,
        pause: () => undefined,
        send: (message, answer) => void caller.receive(this.#server, message, answer),
      },
      signal,
      deadline: undefined,
      attempt: 1,
      replica: undefined,
      record: newRecord(this.#clock.now()),
    }
  }
}

/** Runs rounds of a task, never two at once. The earliest requested time counts. */
export class Rounds {
  readonly #clock: Clock
  readonly #round: () => Promise<Millis>
  #next: { readonly at: Millis; readonly cancel: Cancel } | undefined
  #running = false
  #again = false
  #stopped = false

  /** `round` must not reject, and resolves to the pause before the next round, in milliseconds. */
  constructor(clock: Clock, round: () => Promise<Millis>) {
    this.#clock = clock
    this.#round = round
  }

  get running(): boolean {
    return this.#running
  }

  get stopped(): boolean {
    return this.#stopped
  }

  /** Starts a round in `delayMs`, unless one starts sooner; after the running round, if any is running by then. */
  within(delayMs: Millis): void {
    const at = this.#clock.now() + delayMs
    if (this.#stopped || (this.#next !== undefined && this.#next.at <= at)) return
    this.#unschedule()
    this.#next = { at, cancel: this.#clock.after(delayMs, () => void this.#begin()) }
  }

  /** Drops all requested rounds; a running round continues. */
  forget(): void {
    this.#unschedule()
    this.#again = false
  }

  /** Starts no further round; a running round continues. */
  stop(): void {
    this.#stopped = true
    this.#unschedule()
  }

  async #begin(): Promise<void> {
    this.#next = undefined
    if (this.#running) {
      this.#again = true
      return
    }
    this.#running = true
    this.#again = false
    const delayMs = await this.#round()
    this.#running = false
    this.within(this.#again ? 0 : delayMs)
  }

  #unschedule(): void {
    this.#next?.cancel()
    this.#next = undefined
  }
}

/** Returns the answer to a server's request without an agent behind the session, with a placeholder id. */
function defaultReply({ value: { method } }: Message): string {
  switch (method) {
    case 'ping':
      return resultText(0, '{}')
    case 'roots/list':
      return resultText(0, '{"roots":[]}')
    default:
      return errorText(null, METHOD_NOT_FOUND, 'there is no agent behind this session, only a gateway')
  }
}
