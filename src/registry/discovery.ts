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
  /** The era in which it asks where the server speaks both; modern unless given. */
  readonly era?: Era
  /** Takes secrets out of the server's words. */
  readonly conceal: Conceal
  /** The `initialize` params of the gateway itself. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** Faults stand in the way of what it asks, too. */
  readonly faults: Layer
  /** The names of the faults that hold a handshake with the server now. */
  readonly heldBy: () => readonly string[]
  readonly clock: Clock
  /** For one whole round: handshake and lists, but for the start of a process. Read at each, as the times below: they may change. */
  readonly timeoutMs: Millis
  /** Between two rounds while the server is up. */
  readonly refreshMs: Millis
  /** How much of each list is kept, in bytes. */
  readonly maxList: number
  /** Until the next probe while the server is up. */
  readonly probeMs: Millis
  /** How long a ping may take, and a call of the tool; at most `timeoutMs`. */
  readonly pingMs: Millis
  /** Called in each round, once the server is up; undefined: none. */
  readonly tool?: ProbeTool | undefined
  /** A round succeeded. */
  readonly onUp: (catalog: Catalog, initializeResult: Message) => void
  /** The server says that a list has changed; what it is now is found out by the next round. */
  readonly onStale: () => void
  /** The catalog had come by way of faults which are over: this is the last one without. */
  readonly onReverted: (catalog: Catalog) => void
  /** A round failed. */
  readonly onDown: (error: GatewayError) => void
  /** Told of a round's findings about the server's health, after all else about the round was told; nobody is told unless given. */
  readonly onProbe?: (probe: Probe) => void
  /** The session has ended by itself: the server may be in trouble. */
  readonly onSign?: () => void
}

/** Ends of a ping or a list by which a server may say no more than that it has none: the rest of what it offers tells how it is. */
const refusals: ReadonlySet<string> = new Set<Reason>(['upstream_refused', 'upstream_status', 'bad_reply'])

/** A server that has left so many pings in a row without an answer, and listed what it offers after each, is not pinged any more. */
const MOST_SILENT_PINGS = 2

/** The pause after a round that failed, in milliseconds: it doubles from the first of these to the last. */
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 30_000

/** Longest pause that a server can ask for, in milliseconds: one reply must not keep it out of sight for a day. */
const LONGEST_ASKED_MS = 300_000

/** Several `list_changed` within this time cause one round, in milliseconds. */
const COALESCE_MS = 250

/** So many rounds for lists that changed may follow each other; with each further one the time above doubles. */
const MOST_CHANGES = 10

/** In this time one of them is forgotten, in milliseconds: lists that change without end are fetched about so often. */
const FORGOTTEN_MS = 5_000

/**
 * Keeps one server's catalog true: asks at the start, when the server says that a list changed, and now and
 * then; pings in between, and calls a tool if it is told to; and comes back with a doubling pause while the server is down.
 * Each round is a probe of its health. Runs on its own,
 * so that no other server and no agent ever waits for it.
 */
export class Discovery implements Caller {
  readonly id: string
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly listening = true
  /** In the modern era the catalog holds what servers wrote, whoever will read it. */
  readonly era: Era
  readonly #options: DiscoveryOptions
  readonly #questions: Questions
  readonly #lists: Lists
  readonly #rounds: Rounds
  readonly #probing: Probing
  readonly #watched = new WeakSet<UpstreamSession>()
  #retryMs: Millis = FIRST_RETRY_MS
  /** While it is down: when the next round would begin if the server had not asked for a longer pause, on the monotonic clock. */
  #dueAt: Millis | undefined
  #refresh: Refresh | undefined
  /** Faults may have changed the handshake of the session: the next round sees to it. */
  #greetsAnew = false
  /** Pings in a row that got no answer, each from a server that was up again by its lists. */
  #silentPings = 0
  /** How the latest of them ended. */
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

  /** Begins, or begins anew at once: a restart, or a suspicion that a call raised. */
  run(): void {
    this.#rounds.within(0)
  }

  /**
   * Fetches all lists again, now: what is known of them may be wrong. `greetsAnew`: over a new session, where faults have changed
   * the handshake of the one that is open.
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

  /** Resolves when the round that `refresh` asked for last is over, whatever came of it; at once while there is none. */
  get refreshed(): Promise<void> {
    return this.#refresh?.over ?? Promise.resolve()
  }

  /** A call could not reach the server: look now, not at the next ping. Does nothing while that is under way. */
  suspect(): void {
    if (!this.#rounds.running && this.#retryMs === FIRST_RETRY_MS) this.#rounds.within(0)
  }

  /**
   * The server has answered a call: if it is taken for down, that may be over, and the pause that it asked for is not waited
   * out. Our own pause is: a server that answers agents and refuses probes is not asked in a frenzy.
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
    // The server may be in trouble, or gone: its next round will tell.
    if (answer !== undefined) return void answer(defaultReply(message)).catch(ignore)
    if (!this.#lists.hear(message)) return
    this.#options.onStale()
    this.#rounds.within(this.#lists.patienceMs)
  }

  /** One round; resolves to the time until the next one. */
  async #round(): Promise<Millis> {
    if (this.#refresh !== undefined) this.#refresh.begun = true
    if (this.#greetsAnew) await this.#greetAnew()
    if (this.#rounds.stopped) return 0
    const delayMs = await this.#look()
    if (this.#refresh === undefined) return delayMs
    // One that was asked for meanwhile is that of the next round, which waits for no pause.
    if (!this.#refresh.begun) return 0
    this.#endRefresh()
    return delayMs
  }

  /** Ends the session if faults may have changed its handshake; while there is none, that is left to the round after the next one. */
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
    // In the modern era one answer serves all sessions for a while: a ping has the server asked for another one.
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

  /** Why no session could be opened. A handshake that took too long goes on, and so do the faults that hold it. */
  #notOpened(cause: unknown): unknown {
    if (!isGatewayError(cause) || cause.reason !== 'attempt_timeout' || cause.injected !== undefined)
      return cause
    return { ...cause, injected: this.#options.heldBy() } satisfies GatewayError
  }

  /** How long a round may take, and which setting says so. */
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

  /** Whether the server is there: by a ping, or by a list that it offers where it answers none. Rejects with a `GatewayError`. */
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

  /** Calls the tool that the config names. A server whose tool fails is up all the same: nobody but its health is told. */
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
    // Where the server wants to be left alone for longer than a probe's interval, there is no second one in time.
    const isCertain = delayMs > this.#options.pingMs && delayMs > LAST_RETRY_MS
    round.end({ reason: failureReasonOf(error), message: error.message, isCertain })
    await this.#options.upstreamSessions.drop(this)
    // The pause comes first, whatever happened meanwhile, such as the end of the upstream session.
    this.#rounds.forget()
    this.#dueAt = this.#options.clock.now() + this.#retryMs
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS)
    return delayMs
  }

  /** Looks at once when the upstream session ends by itself, but not ever more often when no upstream session lasts. */
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

/** Only operators read these errors. Without the names of its faults an error would make the server look broken. */
function named(error: GatewayError): GatewayError {
  const { message, injected = [] } = error
  return injected.length === 0 ? error : { ...error, message: message + injectedBy(injected) }
}

/** A round that somebody waits for. */
interface Refresh {
  readonly over: Promise<void>
  readonly end: () => void
  /** Whether the round is under way: one that began before may have seen what is no more. */
  begun: boolean
}

function newRefresh(): Refresh {
  let end = () => {}
  const over = new Promise<void>((resolve) => (end = resolve))
  return { over, end: () => end(), begun: false }
}

/** Whether a server with this `initialize` result has such a list. */
function isOffered(kind: ListKind, { value: { capabilities } }: Message): boolean {
  return isObject(capabilities) && kinds[kind].capability in capabilities
}

const nothing: Fetched = { entries: [], cut: undefined }

/** The lists of one server as they were fetched last, and which of them have to be fetched anew. */
class Lists {
  readonly #clock: Clock
  readonly #refreshMs: () => Millis
  readonly #limit: () => number
  readonly #stale = new Set<ListKind>()
  /** When all of them were fetched last, on the monotonic clock; or when that was begun. */
  #fetchedAt: Millis = -Infinity
  #catalog = emptyCatalog
  /** The last one that no fault has touched. */
  #untouched = emptyCatalog
  /** Fetches because something had changed, less what is forgotten, as of `#changesAt`. */
  #changes = 0
  #changesAt: Millis = 0

  /**
   * `refreshMs`: how long they are believed to be true when nobody says otherwise; `limit`: how much is kept of each, in
   * bytes.
   */
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

  /** Goes back to the last catalog that no fault has touched; false when that is the one there is. */
  revert(): boolean {
    const differs = this.#catalog !== this.#untouched
    this.#catalog = this.#untouched
    return differs
  }

  /** How long a change may wait to be fetched: a large list that changes without end would keep everybody else waiting. */
  get patienceMs(): Millis {
    const excess = this.#recentChanges(this.#clock.now()) - MOST_CHANGES
    return COALESCE_MS * 2 ** Math.max(0, excess)
  }

  #recentChanges(now: Millis): number {
    return Math.max(0, this.#changes - (now - this.#changesAt) / FORGOTTEN_MS)
  }

  /** All of them may have changed. */
  doubt(): void {
    this.#fetchedAt = -Infinity
  }

  /** Takes notice of what the server tells; whether it was that a list changed. */
  hear({ value: { method } }: Message): boolean {
    const changed = listKinds.filter((kind) => kinds[kind].changed === method)
    for (const kind of changed) this.#stale.add(kind)
    return changed.length > 0
  }

  /**
   * Fetches the stale ones that a server with this `initialize` result offers. Rejects with a `GatewayError`. `faults`
   * counts the answers that faults have touched.
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

  /** A server whose tools work is up, whatever it says about its other lists: of those it keeps the last-known, and says so. */
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

/** The gateway's own questions to a server, under ids of their own. */
class Questions {
  readonly #server: string
  readonly #caller: Caller
  readonly #clock: Clock
  readonly #faults: Layer
  readonly #conceal: Conceal
  #count = 0
  /** How many answers faults have done something to. */
  touched = 0

  /** `caller` hears what the server says in the course of an answer. */
  constructor(server: string, caller: Caller, clock: Clock, faults: Layer, conceal: Conceal) {
    this.#faults = faults
    this.#conceal = conceal
    this.#server = server
    this.#caller = caller
    this.#clock = clock
  }

  /** Asks over one upstream session. A method that the server does not know is an answer; its other errors are not. */
  over(upstreamSession: UpstreamSession, signal: Signal): Ask {
    return async (method, params) => {
      const { text, value } = await this.#exchange(upstreamSession, method, params, signal)
      if (!isObject(value.error) || value.error.code === METHOD_NOT_FOUND) return { text, value }
      const said = value.error.message
      const words = printableWords(typeof said === 'string' ? this.#conceal(said) : said, 200)
      throw about(value.error, gatewayError('bad_reply', `${method} failed: ${words}`, { sent: true }))
    }
  }

  /** Whether anybody is there: any answer says yes, an error too. Rejects with a `GatewayError`. */
  async ping(upstreamSession: UpstreamSession, signal: Signal): Promise<void> {
    await this.#exchange(upstreamSession, 'ping', {}, signal)
  }

  /** Asks for the first list that the server offers; without one there is nothing more to ask. Rejects with a `GatewayError`. */
  async look(upstreamSession: UpstreamSession, signal: Signal): Promise<void> {
    const kind = listKinds.find((kind) => isOffered(kind, upstreamSession.initializeResult))
    if (kind !== undefined) await this.over(upstreamSession, signal)(kinds[kind].method, {})
  }

  /** Calls a tool; an error of its own is an answer. Rejects with a `GatewayError`. */
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

/** Rounds of one task, never two at once: each begins as soon as anybody wants one, the soonest wish counts. */
export class Rounds {
  readonly #clock: Clock
  readonly #round: () => Promise<Millis>
  #next: { readonly at: Millis; readonly cancel: Cancel } | undefined
  #running = false
  #again = false
  #stopped = false

  /** `round` never rejects, and resolves to the time until the next one, in milliseconds. */
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

  /** A round begins `delayMs` from now, unless one begins sooner anyway; if one is under way by then, right after it. */
  within(delayMs: Millis): void {
    const at = this.#clock.now() + delayMs
    if (this.#stopped || (this.#next !== undefined && this.#next.at <= at)) return
    this.#unschedule()
    this.#next = { at, cancel: this.#clock.after(delayMs, () => void this.#begin()) }
  }

  /** Drops all rounds that anybody has asked for by now; a round that is under way goes on. */
  forget(): void {
    this.#unschedule()
    this.#again = false
  }

  /** No round begins any more; one that is under way comes to its end. */
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

/** The answer to a server that asks something where there is no agent to ask, under any id. */
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
