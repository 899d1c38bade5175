import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { countCopy } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { INTERNAL_ERROR, isObject, METHOD_NOT_FOUND, paramsOf } from '../../protocol/jsonrpc.ts'
import { isListChange } from '../../protocol/list-changes.ts'
import type { Audience, Refusal, Respondent } from './audience.ts'
import type { InFlight } from '../pipe/in-flight.ts'
import { LogLevels } from './log-levels.ts'
import { Owners } from './owners.ts'
import { Subscriptions } from './subscriptions.ts'
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
