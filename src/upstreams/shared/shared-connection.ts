import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import { resultOf } from '../../mesh/classify.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import {
  INTERNAL_ERROR,
  isObject,
  METHOD_NOT_FOUND,
  paramsOf,
  readMessage,
  resultText,
} from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/lists.ts'
import type { Era } from '../../protocol/versions.ts'
import type { Log } from '../../telemetry/log.ts'
import { roundedDuration } from '../../units/duration.ts'
import { failure, whenAborted } from '../failure.ts'
import { fanOut } from '../fan-out.ts'
import type { ModernSession } from '../modern/modern-session.ts'
import { modernSharedSession, type SharedSessionTerms } from '../modern/shared-session.ts'
import { ownCall } from '../own-call.ts'
import type { Abandoned } from '../pipe/abandoned.ts'
import type { InFlight } from '../pipe/in-flight.ts'
import { MessageSession } from '../pipe/message-session.ts'
import type { Connect, Terms } from '../pipe/pipe.ts'
import { replyToCaller } from '../../protocol/renumber.ts'
import type { UpstreamSession } from '../upstream.ts'
import type { Audience, Refusal, Respondent } from './audience.ts'
import { Owners, type Work } from './owners.ts'
import { Tasks } from './tasks.ts'

/** Client capabilities announced to a shared process. Without roots: clients could see each other's folders. */
const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } }

type SharedTerms = Omit<Terms, 'audience' | 'shared'> &
  SharedSessionTerms & {
    /** Called when nobody gets a request because of an open task or an abandoned call; optional. */
    readonly withheld?: (() => void) | undefined
  }

/** An upstream session shared by many callers; outlives each caller. */
export class SharedConnection {
  readonly #upstreamSession: MessageSession
  readonly #terms: SharedSessionTerms
  readonly #audience: SharedAudience
  readonly #sessions = new Set<SharedSession | ModernSession>()

  /** Opens the upstream session. Rejects with a `GatewayError` after cleaning up. */
  static async open(connect: Connect, terms: SharedTerms, signal: Signal): Promise<SharedConnection> {
    const audience = new SharedAudience(terms)
    const initializeParams = { ...terms.initializeParams, capabilities }
    const upstreamSession = await MessageSession.open(
      connect,
      { ...terms, initializeParams, audience, shared: true },
      signal,
    )
    return new SharedConnection(upstreamSession, terms, audience)
  }

  private constructor(upstreamSession: MessageSession, terms: SharedSessionTerms, audience: SharedAudience) {
    this.#upstreamSession = upstreamSession
    this.#terms = terms
    this.#audience = audience
    whenAborted(upstreamSession.ended, (error) => {
      audience.close()
      for (const session of this.#sessions) session.end(error)
    })
  }

  get era(): Era {
    return this.#upstreamSession.era
  }

  get hasWorked(): boolean {
    return this.#upstreamSession.hasWorked
  }

  get ended(): AbortSignal {
    return this.#upstreamSession.ended
  }

  /** Adds a caller. A caller may leave and return, but has one session at a time. */
  attach(caller: Caller): UpstreamSession {
    const session = this.#sessionFor(caller)
    this.#sessions.add(session)
    whenAborted(session.ended, () => this.#sessions.delete(session))
    return session
  }

  #sessionFor(caller: Caller): SharedSession | ModernSession {
    const { discover } = this.#upstreamSession
    return discover === undefined
      ? new SharedSession(this.#upstreamSession, this.#audience, caller)
      : modernSharedSession(this.#upstreamSession, discover, this.#terms, caller)
  }

  close(): Promise<void> {
    return this.#upstreamSession.close()
  }
}

/** A caller's share of a shared upstream session. Closing ends nothing for other callers. */
class SharedSession implements UpstreamSession {
  readonly keepsState = true
  readonly #upstreamSession: MessageSession
  readonly #audience: SharedAudience
  readonly #caller: Caller
  readonly #end = new AbortController()

  constructor(upstreamSession: MessageSession, audience: SharedAudience, caller: Caller) {
    this.#upstreamSession = upstreamSession
    this.#audience = audience
    this.#caller = caller
    audience.callers.add(caller)
  }

  get initializeResult() {
    return this.#upstreamSession.initializeResult
  }

  get ended(): AbortSignal {
    return this.#end.signal
  }

  exchange(call: Call): Promise<Outcome> {
    if (this.ended.aborted) return Promise.resolve(failure(call, this.ended.reason as GatewayError))
    switch (call.method) {
      case 'resources/subscribe':
        return this.#subscribe(call)
      case 'resources/unsubscribe':
        return this.#unsubscribe(call)
      case 'logging/setLevel':
        return this.#setLevel(call)
      default:
        return this.#upstreamSession.exchange(call)
    }
  }

  async post(text: string): Promise<void> {
    if (this.ended.aborted) throw this.ended.reason
    // The process was told that clients have no roots.
    if (readMessage(text)?.value.method === 'notifications/roots/list_changed') return
    await this.#upstreamSession.post(text, this.#caller)
  }

  /** Does nothing: each caller gets all its messages anyway. */
  listen(): void {}

  close(): Promise<void> {
    if (!this.ended.aborted) this.#leave(gatewayError('cancelled', 'the upstream session was closed'))
    return Promise.resolve()
  }

  /** Ends this session because the upstream session has ended. */
  end(error: GatewayError): void {
    this.#end.abort(error)
  }

  #leave(error: GatewayError): void {
    const { callers, levels, subscriptions } = this.#audience
    this.end(error)
    callers.delete(this.#caller)
    this.#upstreamSession.abandon(this.#caller, error)
    for (const uri of subscriptions.release(this.#caller)) this.#tell('resources/unsubscribe', { uri })
    const before = levels.effective
    levels.forget(this.#caller)
    const level = levels.effective
    if (level !== undefined && level !== before) this.#tell('logging/setLevel', { level })
  }

  /** Sends a request and ignores the answer. */
  #tell(method: string, params: Readonly<Record<string, unknown>>): void {
    void this.#upstreamSession.exchange(
      ownCall(this.#caller.id, method, params, new AbortController().signal),
    )
  }

  #subscribe(call: Call): Promise<Outcome> {
    const { uri } = paramsOf(call.message.value)
    if (typeof uri !== 'string') return this.#upstreamSession.exchange(call)
    return this.#orUndo(this.#audience.subscriptions.add(uri, this.#caller), call)
  }

  #unsubscribe(call: Call): Promise<Outcome> {
    const { uri } = paramsOf(call.message.value)
    const needed = typeof uri === 'string' && this.#audience.subscriptions.remove(uri, this.#caller)
    return needed ? Promise.resolve(emptyAnswer(call)) : this.#upstreamSession.exchange(call)
  }

  /**
   * Sends the process the most verbose level asked for by any caller; the other callers do not get the additional
   * messages.
   */
  #setLevel(call: Call): Promise<Outcome> {
    const { levels } = this.#audience
    const undo = levels.ask(this.#caller, paramsOf(call.message.value).level)
    return undo === undefined
      ? this.#upstreamSession.exchange(call)
      : this.#orUndo(undo, withLevel(call, levels.effective))
  }

  async #orUndo(undo: () => void, call: Call): Promise<Outcome> {
    const outcome = await this.#upstreamSession.exchange(call)
    if (resultOf(outcome) !== 'returned') undo()
    return outcome
  }
}

function withLevel(call: Call, level: string | undefined): Call {
  const { text, value } = call.message
  const message = {
    text: replaceAt(text, ['params', 'level'], level),
    value: { ...value, params: { ...paramsOf(value), level } },
  }
  return { ...call, message }
}

function emptyAnswer(call: Call): Outcome {
  const reply = { text: resultText(0, '{}'), value: { jsonrpc: '2.0', id: 0, result: {} }, status: 200 }
  return { kind: 'answered', result: replyToCaller(call, reply), verdict: 'unchecked' }
}

/** Interval of the warning about undelivered requests, in milliseconds, and the most owners of tasks it names. */
const QUIET_MS: Millis = 60_000
const MOST_NAMED = 3

/** Longest logged part of a client's name, in characters. */
const LONGEST_NAME = 64

const remedy = 'configure the server with `sharing: per_session`'

/** The client capability that each method of a server request needs. */
const needed: ReadonlyMap<unknown, string> = new Map([
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
])

/** Error code of a call whose user must visit some pages first; the error names the pages. */
const ELICITATION_REQUIRED = -32042

/** The audience of a shared process. Messages do not name their caller; unclear messages are not delivered. */
class SharedAudience implements Audience {
  readonly callers = new Set<Caller>()
  readonly subscriptions = new Subscriptions()
  readonly levels = new LogLevels()
  readonly #server: string
  readonly #tasks: Tasks
  /** The callers whose users must visit a page, by elicitation id. */
  readonly #elicitations: Owners<Caller>
  readonly #changes: Coalescing<Message>
  readonly #clock: Clock
  readonly #log: Log
  readonly #withheld: () => void
  #quietUntil: Millis = -Infinity

  constructor({
    server,
    clock,
    log,
    withheld = () => undefined,
  }: Pick<SharedTerms, 'server' | 'clock' | 'log' | 'withheld'>) {
    this.#server = server
    this.#clock = clock
    this.#log = log
    this.#withheld = withheld
    this.#tasks = new Tasks(clock)
    this.#elicitations = new Owners(clock)
    this.#changes = new Coalescing(clock, (message) => this.#tell(this.callers, message))
  }

  close(): void {
    this.#changes.end()
  }

  respondent(request: Message, calls: InFlight): Respondent | Refusal {
    if (request.value.method === 'roots/list') {
      return { code: METHOD_NOT_FOUND, message: `no roots in a shared process; ${remedy}` }
    }
    const caller = this.#concerned(request, calls)
    if (caller === undefined) {
      this.#withhold(request, calls)
      return { code: INTERNAL_ERROR, message: `cannot tell which client this request is for; ${remedy}` }
    }
    const capability = needed.get(request.value.method)
    if (capability !== undefined && !can(caller, capability)) {
      return { code: METHOD_NOT_FOUND, message: `the client does not support ${capability}` }
    }
    this.#elicits(paramsOf(request.value), caller)
    return { caller, deliver: calls.wayTo(caller) }
  }

  notify(notification: Message, calls: InFlight): Promise<void> | undefined {
    const method = notification.value.method as string
    const params = paramsOf(notification.value)
    if (isListChange(notification)) return void this.#changes.tell(method, notification)
    if (method === 'notifications/resources/updated')
      return typeof params.uri === 'string'
        ? this.#tell(this.subscriptions.subscribersOf(params.uri), notification)
        : undefined
    const caller =
      method === 'notifications/elicitation/complete'
        ? this.#elicitations.of(params.elicitationId)
        : (this.#concerned(notification, calls) ?? (this.#isIdle(calls) ? calls.soleCaller() : undefined))
    if (caller === undefined) return undefined
    if (method === 'notifications/message' && !this.levels.admits(caller, params.level)) return undefined
    return calls.wayTo(caller)(notification)
  }

  refusal(call: Call): Outcome | undefined {
    return this.#tasks.refusal(call)
  }

  answered(method: string, caller: Caller, reply: Message): Message {
    const { error } = reply.value
    if (!isObject(error)) return this.#tasks.answered(method, caller, reply)
    if (error.code !== ELICITATION_REQUIRED || !isObject(error.data)) return reply
    const { elicitations } = error.data
    if (!Array.isArray(elicitations)) return reply
    for (const elicitation of elicitations) if (isObject(elicitation)) this.#elicits(elicitation, caller)
    return reply
  }

  left(caller: Caller): void {
    this.#tasks.left(caller)
    this.#elicitations.left(caller)
  }

  /** Returns the owner of the named task, otherwise the only caller with work in the process. */
  #concerned(message: Message, calls: InFlight): Caller | undefined {
    const owner = this.#tasks.ownerFor(message)
    if (owner !== 'none') return owner
    const working = this.#tasks.working()
    const only = calls.onlyCaller()
    if (working === 'nobody') return only
    if (working === 'unclear' || working.era === 'modern') return undefined
    return working === only || calls.isQuiet ? working : undefined
  }

  /** Counts and logs an undelivered request when an open task or an abandoned call may be the cause. */
  #withhold({ value: { method } }: Message, { abandoned }: InFlight): void {
    const isTask = this.#tasks.working() !== 'nobody'
    if (!isTask && abandoned.leftMs === 0) return
    this.#withheld()
    const now = this.#clock.now()
    if (now < this.#quietUntil) return
    this.#quietUntil = now + QUIET_MS
    const { owners, leftMs } = isTask ? this.#tasks.work() : workOf(abandoned)
    const names = owners.slice(0, MOST_NAMED).map(nameOf)
    const whose = owners.length === 0 ? 'a client that has left' : names.join(', ')
    const why = isTask
      ? `that name no task while a task of ${whose} is open: until the task ends, or its client has left,`
      : `while a call that ${whose} gave up may go on: until the server answers the call, or has had time to stop,`
    this.#log.warn(
      { method, owners: names, leftMs: Math.round(leftMs) },
      `no client gets the server's requests ${why} for ${roundedDuration(leftMs)} at most; ${remedy}`,
    )
  }

  #isIdle(calls: InFlight): boolean {
    return calls.isQuiet && this.#tasks.working() === 'nobody'
  }

  #elicits({ elicitationId }: Readonly<Record<string, unknown>>, caller: Caller): void {
    if (typeof elicitationId === 'string') this.#elicitations.add(elicitationId, caller, false)
  }

  #tell(callers: ReadonlySet<Caller>, notification: Message): undefined {
    fanOut(callers, notification, (caller, message) => caller.receive(this.#server, message))
  }
}

/** Returns the callers whose abandoned calls may still run. */
function workOf(abandoned: Abandoned): Work<Caller> {
  const callers = new Set(abandoned.callers())
  callers.delete(undefined)
  return { owners: [...callers] as Caller[], leftMs: abandoned.leftMs }
}

/** Returns a client's own name and its address. */
function nameOf({ initializeParams: { clientInfo }, client }: Caller): string {
  const name = isObject(clientInfo) && typeof clientInfo.name === 'string' ? clientInfo.name : 'a client'
  return `${name.slice(0, LONGEST_NAME)}${client === undefined ? '' : ` at ${client}`}`
}

function can({ initializeParams }: Caller, capability: string): boolean {
  return isObject(initializeParams.capabilities) && capability in initializeParams.capabilities
}

/** Most verbose first. */
const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']

/** Log level of a caller that has set no level, once another caller has set a level. */
const UNASKED = levels.indexOf('info')

/** Each caller's log level, for a server with a single level. */
class LogLevels {
  readonly #asked = new Map<Caller, number>()
  readonly #counts = levels.map(() => 0)

  /** The most verbose level of all callers; undefined without any. */
  get effective(): string | undefined {
    return levels[this.#counts.findIndex((count) => count > 0)]
  }

  /**
   * Sets a caller's level. Returns a function that undoes this if the server declines; undefined for an unknown level.
   */
  ask(caller: Caller, level: unknown): (() => void) | undefined {
    const rank = levels.indexOf(level as string)
    if (rank === -1) return undefined
    const before = this.#asked.get(caller)
    this.#set(caller, rank)
    return () => this.#set(caller, before)
  }

  forget(caller: Caller): void {
    this.#set(caller, undefined)
  }

  #set(caller: Caller, rank: number | undefined): void {
    const before = this.#asked.get(caller)
    if (before !== undefined) this.#counts[before]!--
    if (rank === undefined) this.#asked.delete(caller)
    else {
      this.#asked.set(caller, rank)
      this.#counts[rank]!++
    }
  }

  admits(caller: Caller, level: unknown): boolean {
    if (this.#asked.size === 0) return true
    const rank = levels.indexOf(level as string)
    return rank === -1 || rank >= (this.#asked.get(caller) ?? UNASKED)
  }
}

/** Subscribed callers of each resource, for a server with a single client. */
export class Subscriptions {
  readonly #callers = new Map<string, Set<Caller>>()
  readonly #uris = new Map<Caller, Set<string>>()

  /** Adds a subscription. Returns a function that undoes this if the server declines. */
  add(uri: string, caller: Caller): () => void {
    const callers = this.#callers.get(uri) ?? new Set()
    if (callers.has(caller)) return () => undefined
    this.#callers.set(uri, callers.add(caller))
    this.#uris.set(caller, (this.#uris.get(caller) ?? new Set()).add(uri))
    return () => this.remove(uri, caller)
  }

  /** Removes a subscription. Returns whether other callers are still subscribed. */
  remove(uri: string, caller: Caller): boolean {
    const callers = this.#callers.get(uri)
    callers?.delete(caller)
    if (callers?.size === 0) this.#callers.delete(uri)
    const uris = this.#uris.get(caller)
    uris?.delete(uri)
    if (uris?.size === 0) this.#uris.delete(caller)
    return this.#callers.has(uri)
  }

  /** Ends all subscriptions of a caller; returns the resources that have no subscribers left. */
  release(caller: Caller): string[] {
    return [...(this.#uris.get(caller) ?? [])].filter((uri) => !this.remove(uri, caller))
  }

  /** Returns the subscribers to notify of a change; a server may report a change to a part of a subscribed resource. */
  subscribersOf(changed: string): Set<Caller> {
    const subscribers = new Set<Caller>()
    const add = (uri: string) => {
      for (const caller of this.#callers.get(uri) ?? []) subscribers.add(caller)
    }
    add(changed)
    const parts = changed.split('/', MOST_PARTS + 1)
    if (parts.length <= MOST_PARTS) {
      // A caller may have subscribed to any prefix that ends before or after a slash.
      for (let at = changed.indexOf('/'); at !== -1; at = changed.indexOf('/', at + 1)) {
        add(changed.slice(0, at))
        add(changed.slice(0, at + 1))
      }
      return subscribers
    }
    for (const uri of this.#callers.keys())
      if (changed.startsWith(uri.endsWith('/') ? uri : `${uri}/`)) add(uri)
    return subscribers
  }
}

/** Most parts of a URI for looking up prefixes; for longer URIs all subscriptions are scanned. */
const MOST_PARTS = 64
