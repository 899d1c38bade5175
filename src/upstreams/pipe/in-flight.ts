import type { Answer, Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { progressUnder } from '../../protocol/renumber.ts'
import { Abandoned, type AbandonedCall } from './abandoned.ts'
import { Backlog } from './backlog.ts'
import { TaskProgress } from './task-progress.ts'

/** Takes one message of a server; `answer` is given when it is a request. */
export type Deliver = (message: Message, answer?: Answer) => Promise<void> | undefined

/** A call that the server has not answered yet. */
export interface InFlightCall {
  /** Our own id of the request. */
  readonly id: number
  readonly call: Call
  readonly resolve: (outcome: Outcome) => void
  readonly onAbort: () => void
  readonly begunAt: Millis
  /** Whether the server may have got it. */
  written: boolean
  /** Has its answer come as the server gives it again; undefined where no fault wants another. */
  unshape: (() => void) | undefined
  /** Ends the wait for a slow channel. */
  release: (() => void) | undefined
  /** The messages that wait for a slow channel, where no other caller may wait; undefined until there were any. */
  backlog: Backlog | undefined
}

export interface InFlightParts {
  /** The server's name in the registry. */
  readonly server: string
  /** Whether callers share the upstream session. Then none of them may hold it up: what is too much for one waits apart. */
  readonly shared: boolean
  readonly clock: Pick<Clock, 'now'>
  /** Told of a call whose caller reads so slowly that no more may wait for it. */
  readonly overflow: (entry: InFlightCall) => void
}

/** Requests in whose course a server has nothing to ask or to tell, so that nothing is put down to them. */
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

/** Reads an id or token that the gateway gave out as a number. Some servers send it back as text. Undefined for anything else. */
function ourNumber(id: unknown): number | undefined {
  if (typeof id === 'number') return id
  return typeof id === 'string' && /^[1-9]\d{0,14}$/.test(id) ? Number(id) : undefined
}

/** The calls of one upstream session that wait for their answers, oldest first. */
export class InFlight {
  readonly #parts: InFlightParts
  readonly #entries = new Map<number, InFlightCall>()
  readonly abandoned: Abandoned
  readonly #taskProgress = new TaskProgress()
  /** The only caller that ever called, as long as there is only one. */
  #sole: Caller | 'nobody' | 'several' = 'nobody'
  /** The calls whose answer waits until their caller has got all earlier messages. */
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

  /** Enters a call under an id of our own. `abort` is told when its signal aborts before it is settled. */
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

  /** Takes the server's answer to a call, in the server's words. */
  heard({ id, call }: InFlightCall, answer: Message): void {
    this.abandoned.heard(id)
    this.#taskProgress.answered(id, call, answer.value)
  }

  /** Tells a caller of the progress of a call that became a task. False for a token of no such call. */
  progressOfTask(token: unknown, progress: Message): boolean {
    const number = ourNumber(token)
    const begun = number === undefined ? undefined : this.#taskProgress.get(number)
    begun?.caller.receive(this.#parts.server, progressUnder(begun.token, progress))
    return begun !== undefined
  }

  /** The call behind an id or progress token, whatever the server sent as such. */
  get(id: unknown): InFlightCall | undefined {
    const number = ourNumber(id)
    return number === undefined ? undefined : this.#entries.get(number)
  }

  /** The only call that the server can be answering, as far as anybody can tell; undefined when there are none, or several. */
  get only(): InFlightCall | undefined {
    const [entry] = this.#entries.size === 1 ? this.#entries.values() : []
    return this.abandoned.leftMs > 0 ? undefined : entry
  }

  /** The server has answered. The answer overtakes nothing that came before it. */
  answer(entry: InFlightCall, outcome: Outcome): void {
    const { backlog, call } = entry
    if (call.tool !== undefined) this.hasWorked = true
    if (backlog === undefined || backlog.isEmpty) return this.settle(entry, outcome)
    this.#entries.delete(entry.id)
    this.#answered.add(entry)
    backlog.whenEmpty(() => this.settle(entry, outcome))
  }

  /** Whether the server is done with a call that is not settled yet. */
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

  /** A call that the server has got was given up: until it is over, the server may speak on its behalf. False where that does not matter. */
  abandon({ id, begunAt, call: { caller, method } }: InFlightCall): boolean {
    if (quiet.has(method) || (!this.#parts.shared && caller.era === 'legacy')) return false
    this.abandoned.add(id, { caller, method, ranMs: this.#parts.clock.now() - begunAt })
    return true
  }

  /** The cancellation of a call that was given up has been sent. */
  cancellationSent({ id }: InFlightCall): void {
    this.abandoned.sent(id, this.#lastId)
  }

  /** The call that was given up under this id, which the server has answered all the same. */
  finished(id: unknown): AbandonedCall | undefined {
    const number = ourNumber(id)
    return number === undefined ? undefined : this.abandoned.answered(number)
  }

  /** The server speaks of what is no call in flight. */
  goesOn(id: unknown): void {
    const number = ourNumber(id)
    if (number !== undefined) this.abandoned.goesOn(number)
  }

  /** A caller is gone for good. */
  left(caller: Caller): void {
    this.abandoned.left(caller)
    this.#taskProgress.left(caller)
    if (this.#sole === caller) this.#sole = 'several'
  }

  /** All calls, or those of one caller. */
  of(caller?: Caller): InFlightCall[] {
    const all = [...this.#entries.values()]
    return caller === undefined ? all : all.filter(({ call }) => call.caller === caller)
  }

  /**
   * The one caller for whom the server may be at work: whose calls are in flight, or were given up and may go on.
   * Undefined when there is none, or more than one. Two calls of the modern era count as two callers': without
   * sessions, nobody can tell whether they are one client's.
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

  /** Whether the server is at work on no call at all, as far as anybody can tell. */
  get isQuiet(): boolean {
    if (this.abandoned.leftMs > 0) return false
    for (const { call } of this.#entries.values()) if (!quiet.has(call.method)) return false
    return true
  }

  /** The only caller that ever had the server do anything, while it is here; undefined when there were others. */
  soleCaller(): Caller | undefined {
    return typeof this.#sole === 'string' || this.#sole.era === 'modern' ? undefined : this.#sole
  }

  /** The way to a caller: through its latest call while that is in flight, and past all calls otherwise. */
  wayTo(caller: Caller): Deliver {
    const latest = this.#latest(caller)
    return (message, answer) => {
      if (latest !== undefined && this.#entries.has(latest.id)) return this.through(latest, message, answer)
      caller.receive(this.#parts.server, message, answer)
      return undefined
    }
  }

  /**
   * Sends through a call's channel. Waits for a slow one where the upstream session is its caller's alone, but for no
   * longer than the call is in flight; otherwise never.
   */
  through(entry: InFlightCall, message: Message, answer?: Answer): Promise<void> | undefined {
    const { call, backlog } = entry
    if (backlog?.isFull === true) return void backlog.add(message, answer)
    const sent = call.channel.send(message, answer)
    if (sent === undefined) return undefined
    // A caller of the modern era may stand for several clients.
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
