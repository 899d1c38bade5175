import type { Caller, Message } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { Coalescing } from '../../mesh/coalescing.ts'
import { countCopy } from '../../mesh/turns.ts'
import { during } from '../../mesh/work.ts'
import { isObject, METHOD_NOT_FOUND, paramsOf } from '../../protocol/jsonrpc.ts'
import { listChanges } from '../../protocol/list-changes.ts'
import type { Audience, Refusal, Respondent } from './audience.ts'
import type { InFlight } from '../pipe/in-flight.ts'
import { LogLevels } from './log-levels.ts'
import { Subscriptions } from './subscriptions.ts'

const INTERNAL_ERROR = -32603

/** For whoever runs the server. */
const remedy = 'configure the server with `sharing: per_session`'

/** What a client must be able to do to be asked something. */
const needed: Readonly<Record<string, string>> = {
  'sampling/createMessage': 'sampling',
  'elicitation/create': 'elicitation',
}

/**
 * The audience of a process that many callers share. The protocol does not say on whose behalf such a
 * process speaks: what could reach the wrong caller reaches nobody.
 */
export class SharedAudience implements Audience {
  readonly callers = new Set<Caller>()
  readonly subscriptions = new Subscriptions()
  readonly levels = new LogLevels()
  readonly #server: string
  readonly #changes: Coalescing<Message>

  constructor(server: string, clock: Clock) {
    this.#server = server
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
    const caller = calls.onlyCaller()
    if (caller === undefined) {
      return { code: INTERNAL_ERROR, message: `it cannot be told which client this is for; ${remedy}` }
    }
    const capability = needed[request.value.method as string]
    if (capability !== undefined && !can(caller, capability)) {
      return { code: METHOD_NOT_FOUND, message: `the client does not support ${capability}` }
    }
    return { caller, deliver: calls.wayTo(caller) }
  }

  notify(notification: Message, calls: InFlight): Promise<void> | undefined {
    const params = paramsOf(notification.value)
    const method = notification.value.method as string
    if (listChanges.has(method)) return void this.#changes.tell(method, notification)
    switch (method) {
      case 'notifications/message':
        return this.#log(notification, params.level, calls)
      case 'notifications/resources/updated':
        return this.#tell(this.subscriptions.subscribersOf(String(params.uri)), notification)
      default:
        return this.#tell(this.callers, notification)
    }
  }

  #log(notification: Message, level: unknown, calls: InFlight): Promise<void> | undefined {
    const only = calls.onlyCaller()
    if (only !== undefined)
      return this.levels.admits(only, level) ? calls.wayTo(only)(notification) : undefined
    return this.#tell(
      [...this.callers].filter((caller) => this.levels.admits(caller, level)),
      notification,
    )
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
