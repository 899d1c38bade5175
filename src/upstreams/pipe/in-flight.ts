import type { Answer, Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { progressUnder } from '../../protocol/renumber.ts'
import { Abandoned, type AbandonedCall } from './abandoned.ts'
import { Backlog } from './backlog.ts'
import { TaskProgress } from './task-progress.ts'

/** Takes a server's message; for a request, `answer` sends the answer to the server. */
export type Deliver = (message: Message, answer?: Answer) => Promise<void> | undefined

/** A call without an answer so far. */
export interface InFlightCall {
  /** The gateway's own request id. */
  readonly id: number
  readonly call: Call
  readonly resolve: (outcome: Outcome) => void
  readonly onAbort: () => void
  readonly begunAt: Millis
  /** Whether the server may have received the call. */
  written: boolean
  /** Stops a fault from changing the server's answer; undefined without a fault. */
  unshape: (() => void) | undefined
  /** Ends the wait for a slow channel. */
  release: (() => void) | undefined
  /** Messages that wait for a slow channel, if other callers must not wait; undefined before the first message. */
  backlog: Backlog | undefined
}

export interface InFlightParts {
  readonly server: string
  /**
   * Whether callers share the upstream session. If so, no caller may delay others: messages for a slow caller queue in
   * a backlog.
   */
  readonly shared: boolean
  readonly clock: Pick<Clock, 'now'>
  /** Called for a call whose caller reads too slowly for its backlog. */
  readonly overflow: (entry: InFlightCall) => void
}

/** Methods for which a server sends no requests or notifications, so no server message is attributed to them. */
const quiet = new Set([
  'initialize',
  'server/discover',
  'subscriptions/listen',
  'ping',
  'logging/setLevel',
  'resources/subscribe',
  'resources/unsubscribe',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
])

/**
 * Returns an id or progress token of the gateway as a number, even if the server returned text; undefined for any other
 * value.
 */
function ourNumber(id: unknown): number | undefined {
  if (typeof id === 'number') return id
  return typeof id === 'string' && /^[1-9]\d{0,14}$/.test(id) ? Number(id) : undefined
}

/** Unanswered calls of an upstream session, oldest first. */
export class InFlight {
  readonly #parts: InFlightParts
  readonly #entries = new Map<number, InFlightCall>()
  readonly abandoned: Abandoned
  readonly #taskProgress = new TaskProgress()
  /** The only caller so far; `several` after a second caller, or once the only caller has left. */
  #sole: Caller | 'nobody' | 'several' = 'nobody'
  /** Answered calls whose callers have not yet got all earlier messages. */
  readonly #answered = new Set<InFlightCall>()
  /** Whether the server has answered a tool call. */
  hasWorked = false
  #lastId = 0

  constructor(parts: InFlightParts) {
    this.#parts = parts
    this.abandoned = new Abandoned(parts.clock)
  }

  get size(): number {
    return this.#entries.size
  }

  /** Registers a call under a new id. Calls `abort` when its signal aborts before the end. */
  add(call: Call, resolve: (outcome: Outcome) => void, abort: (entry: InFlightCall) => void): InFlightCall {
    const id = ++this.#lastId
    const onAbort = () => abort(entry)
    const entry: InFlightCall = {
      id,
      call,
      resolve,
      onAbort,
      begunAt: this.#parts.clock.now(),
      written: false,
      unshape: undefined,
      release: undefined,
      backlog: undefined,
    }
    this.#entries.set(id, entry)
    if (this.#sole !== call.caller && this.#sole !== 'several' && !quiet.has(call.method))
      this.#sole = this.#sole === 'nobody' ? call.caller : 'several'
    call.signal.addEventListener('abort', onAbort)
    return entry
  }

  /** Notes the server's original answer to a call. */
  heard({ id, call }: InFlightCall, answer: Message): void {
    this.abandoned.heard(id)
    this.#taskProgress.answered(id, call, answer.value)
  }

  /** Passes on the progress of a call that became a task. Returns false if the token belongs to no such call. */
  progressOfTask(token: unknown, progress: Message): boolean {
    const number = ourNumber(token)
    const begun = number === undefined ? undefined : this.#taskProgress.get(number)
    begun?.caller.receive(this.#parts.server, progressUnder(begun.token, progress))
    return begun !== undefined
  }

  /** Returns the call for an id or progress token, in whatever form the server sent the id. */
  get(id: unknown): InFlightCall | undefined {
    const number = ourNumber(id)
    return number === undefined ? undefined : this.#entries.get(number)
  }

  /** The only call in flight; undefined for none or several, or while an abandoned call may still run. */
  get only(): InFlightCall | undefined {
    const [entry] = this.#entries.size === 1 ? this.#entries.values() : []
    return this.abandoned.leftMs > 0 ? undefined : entry
  }

  /** Delivers the answer behind all earlier messages. */
  answer(entry: InFlightCall, outcome: Outcome): void {
    const { backlog, call } = entry
    if (call.tool !== undefined) this.hasWorked = true
    if (backlog === undefined || backlog.isEmpty) return this.settle(entry, outcome)
    this.#entries.delete(entry.id)
    this.#answered.add(entry)
    backlog.whenEmpty(() => this.settle(entry, outcome))
  }

  /** Whether the server has answered an unsettled call. */
  isAnswered(entry: InFlightCall): boolean {
    return this.#answered.has(entry)
  }

  settle(entry: InFlightCall, outcome: Outcome): void {
    if (!this.#entries.delete(entry.id) && !this.#answered.delete(entry)) return
    entry.call.signal.removeEventListener('abort', entry.onAbort)
    entry.unshape?.()
    entry.release?.()
    entry.backlog?.drop()
    entry.resolve(outcome)
  }

  /**
   * Notes an abandoned call, because the server may still send messages for it. Returns false for a call that need not
   * be noted.
   */
  abandon({ id, begunAt, call: { caller, method } }: InFlightCall): boolean {
    if (quiet.has(method) || (!this.#parts.shared && caller.era === 'legacy')) return false
    this.abandoned.add(id, { caller, method, ranMs: this.#parts.clock.now() - begunAt })
    return true
  }

  cancellationSent({ id }: InFlightCall): void {
    this.abandoned.sent(id, this.#lastId)
  }

  /** Returns the abandoned call under this id after a late answer. */
  finished(id: unknown): AbandonedCall | undefined {
    const number = ourNumber(id)
    return number === undefined ? undefined : this.abandoned.answered(number)
  }

  goesOn(id: unknown): void {
    const number = ourNumber(id)
    if (number !== undefined) this.abandoned.goesOn(number)
  }

  left(caller: Caller): void {
    this.abandoned.left(caller)
    this.#taskProgress.left(caller)
    if (this.#sole === caller) this.#sole = 'several'
  }

  /** Returns all calls, or all calls of one caller. */
  of(caller?: Caller): InFlightCall[] {
    const all = [...this.#entries.values()]
    return caller === undefined ? all : all.filter(({ call }) => call.caller === caller)
  }

  /**
   * Returns the only caller with calls in flight, or abandoned and possibly running; undefined for none or several. Two
   * calls of the modern era count as two callers: without sessions, nobody can tell whether both belong to one client.
   */
  onlyCaller(): Caller | undefined {
    let only: Caller | undefined
    for (const { call } of this.#entries.values()) {
      if (quiet.has(call.method) || (call.caller === only && only.era === 'legacy')) continue
      if (only !== undefined) return undefined
      only = call.caller
    }
    for (const caller of this.abandoned.callers()) {
      if (caller !== undefined && caller === only && only.era === 'legacy') continue
      if (caller === undefined || only !== undefined) return undefined
      only = caller
    }
    return only
  }

  /** Whether the server works on no call, as far as known. */
  get isQuiet(): boolean {
    if (this.abandoned.leftMs > 0) return false
    for (const { call } of this.#entries.values()) if (!quiet.has(call.method)) return false
    return true
  }

  /**
   * Returns the caller if this session has had only one caller, who is still present and legacy; otherwise undefined.
   */
  soleCaller(): Caller | undefined {
    return typeof this.#sole === 'string' || this.#sole.era === 'modern' ? undefined : this.#sole
  }

  /**
   * Returns a function that sends messages to a caller: through its latest call in flight, otherwise outside of calls.
   */
  wayTo(caller: Caller): Deliver {
    const latest = this.#latest(caller)
    return (message, answer) => {
      if (latest !== undefined && this.#entries.has(latest.id)) return this.through(latest, message, answer)
      caller.receive(this.#parts.server, message, answer)
      return undefined
    }
  }

  /**
   * Sends a message through a call's channel. The result is a wait for a slow channel only if no other client could be
   * delayed; otherwise later messages queue in the backlog.
   */
  through(entry: InFlightCall, message: Message, answer?: Answer): Promise<void> | undefined {
    const { call, backlog } = entry
    if (backlog?.isFull === true) return void backlog.add(message, answer)
    const sent = call.channel.send(message, answer)
    if (sent === undefined) return undefined
    // A modern caller may stand for several clients.
    if (this.#parts.shared || call.caller.era === 'modern') return void this.#backlogOf(entry).wait(sent)
    return new Promise((resolve) => {
      entry.release = resolve
      sent.then(resolve, resolve)
    })
  }

  #backlogOf(entry: InFlightCall): Backlog {
    return (entry.backlog ??= new Backlog(entry.call.channel, () => this.#parts.overflow(entry)))
  }

  #latest(caller: Caller): InFlightCall | undefined {
    let latest: InFlightCall | undefined
    for (const entry of this.#entries.values()) {
      if (entry.call.caller === caller && !quiet.has(entry.call.method)) latest = entry
    }
    return latest
  }
}
