import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { countCopy } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { INTERNAL_ERROR, isObject, METHOD_NOT_FOUND, paramsOf } from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/list-changes.ts'
import type { InFlight } from '../pipe/in-flight.ts'
import type { Audience, Refusal, Respondent } from './audience.ts'
import { Owners } from './owners.ts'
import { Tasks } from './tasks.ts'

/** For whoever runs the server. */
const remedy = 'configure the server with `sharing: per_session`'

/** What a client must be able to do to be asked something. */
const needed: ReadonlyMap<unknown, string> = new Map([
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
])

/** The error of a call that cannot go on before its user has been to some pages; it names them. */
const ELICITATION_REQUIRED = -32042

/**
 * The audience of a process that many callers share. The protocol does not say on whose behalf such a
 * process speaks: what could reach the wrong caller reaches nobody.
 */
export class SharedAudience implements Audience {
  readonly callers = new Set<Caller>()
  readonly subscriptions = new Subscriptions()
  readonly levels = new LogLevels()
  readonly #server: string
  readonly #tasks: Tasks
  /** Whom the pages are for that the process sent users to. */
  readonly #elicitations: Owners<Caller>
  readonly #changes: Coalescing<Message>

  constructor(server: string, clock: Clock) {
    this.#server = server
    this.#tasks = new Tasks(clock)
    this.#elicitations = new Owners(clock)
    this.#changes = new Coalescing(clock, (message) => this.#tell(this.callers, message))
  }

  /** The process speaks no more. */
  close(): void {
    this.#changes.end()
  }

  respondent(request: Message, calls: InFlight): Respondent | Refusal {
    if (request.value.method === 'roots/list') {
      return { code: METHOD_NOT_FOUND, message: `no roots in a shared process; ${remedy}` }
    }
    const caller = this.#concerned(request, calls)
    if (caller === undefined) {
      return { code: INTERNAL_ERROR, message: `it cannot be told which client this is for; ${remedy}` }
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

  /** Whom a message concerns: the owner of the task that it names, or else the only one whom the process works for. */
  #concerned(message: Message, calls: InFlight): Caller | undefined {
    const owner = this.#tasks.ownerFor(message)
    if (owner !== 'none') return owner
    const working = this.#tasks.working()
    const only = calls.onlyCaller()
    if (working === 'nobody') return only
    if (working === 'unclear' || working.takesInputRequired) return undefined
    return working === only || calls.isQuiet ? working : undefined
  }

  #isIdle(calls: InFlight): boolean {
    return calls.isQuiet && this.#tasks.working() === 'nobody'
  }

  #elicits({ elicitationId }: Readonly<Record<string, unknown>>, caller: Caller): void {
    if (typeof elicitationId === 'string') this.#elicitations.add(elicitationId, caller, false)
  }

  #tell(callers: Iterable<Caller>, notification: Message): undefined {
    during('fan_out', () => {
      for (const caller of callers) {
        caller.receive(this.#server, notification)
        countCopy()
      }
    })
  }
}

function can({ hello }: Caller, capability: string): boolean {
  return isObject(hello.capabilities) && capability in hello.capabilities
}

/** Most verbose first. */
const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']

/** What a caller gets that never asked, once another one did. */
const UNASKED = levels.indexOf('info')

/** The log level that each caller asked for, where a server knows only one. */
class LogLevels {
  readonly #asked = new Map<Caller, number>()
  /** How many asked for each level. */
  readonly #counts = levels.map(() => 0)

  /** The most verbose level that was asked for; undefined when nobody did. */
  get effective(): string | undefined {
    return levels[this.#counts.findIndex((count) => count > 0)]
  }

  /** Returns what takes it back, for a server that declines; undefined for a level that does not exist. */
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

  /** Whether a caller wants messages of this level. */
  admits(caller: Caller, level: unknown): boolean {
    if (this.#asked.size === 0) return true
    const rank = levels.indexOf(level as string)
    return rank === -1 || rank >= (this.#asked.get(caller) ?? UNASKED)
  }
}

/** Which caller subscribed to which resource, where a server knows only one client. */
export class Subscriptions {
  readonly #callers = new Map<string, Set<Caller>>()
  readonly #uris = new Map<Caller, Set<string>>()

  /** Returns what takes it back, for a server that declines. */
  add(uri: string, caller: Caller): () => void {
    const callers = this.#callers.get(uri) ?? new Set()
    if (callers.has(caller)) return () => undefined
    this.#callers.set(uri, callers.add(caller))
    this.#uris.set(caller, (this.#uris.get(caller) ?? new Set()).add(uri))
    return () => this.remove(uri, caller)
  }

  /** Returns whether other callers are still subscribed. */
  remove(uri: string, caller: Caller): boolean {
    const callers = this.#callers.get(uri)
    callers?.delete(caller)
    if (callers?.size === 0) this.#callers.delete(uri)
    const uris = this.#uris.get(caller)
    uris?.delete(uri)
    if (uris?.size === 0) this.#uris.delete(caller)
    return this.#callers.has(uri)
  }

  /** Ends all that a caller subscribed to; returns what nobody is subscribed to any more. */
  release(caller: Caller): string[] {
    return [...(this.#uris.get(caller) ?? [])].filter((uri) => !this.remove(uri, caller))
  }

  /** Who wants to know of a change; a server may tell of a part of what was subscribed to. */
  subscribersOf(changed: string): Set<Caller> {
    const subscribers = new Set<Caller>()
    const add = (uri: string) => {
      for (const caller of this.#callers.get(uri) ?? []) subscribers.add(caller)
    }
    add(changed)
    const parts = changed.split('/', MOST_PARTS + 1)
    if (parts.length <= MOST_PARTS) {
      // Each beginning that ends before or behind a slash may have been subscribed to.
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

/** Most parts of a URI whose beginnings are looked up; of one with more, all subscriptions are gone through. */
const MOST_PARTS = 64
