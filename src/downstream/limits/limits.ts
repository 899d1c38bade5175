import type { RequestId } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { formatRate, KeyedLimit, perSecond, type Rate } from '../../policies/rate-limit/limit.ts'
import type { KeepAlive } from '../keep-alive.ts'
import type { Quotas } from './quotas.ts'
import type { ReplayBudget } from '../http/event-stream.ts'
import type { Tarpit } from './tarpit.ts'
import type { Tenancies } from '../../access/caller.ts'
import type { UnreadReplies } from '../http/unread-replies.ts'

/** Limits for each agent, and keep-alive for its connections. */
export interface Guards {
  /** How fast requests may come. */
  readonly limits: RequestLimits
  /** Holds back rejections of clients that come back sooner than they were told. */
  readonly tarpit: Tarpit
  /** The limits on one client's share of what all clients use. */
  readonly quotas: Quotas
  /** Whom requests count as. */
  readonly tenancies: Tenancies
  /** Told of a request that met a defect of the gateway; gives the text of the error that answers it. */
  readonly defect: (id: RequestId, cause: unknown) => string
  /** Replies that wait for clients which do not read them. */
  readonly unread: UnreadReplies
  /** Replies that are open, which say something while they are quiet. */
  readonly keepAlive: KeepAlive
  /** The events of all sessions that are kept for clients that come back. */
  readonly replay: ReplayBudget
}

/** How fast requests may come. */
export interface RequestRate {
  /** In the long run. */
  readonly rate: Rate
  /** At once, after a pause; the requests of one second, and at least 1, unless given. */
  readonly burst?: number | undefined
}

/** Without a rate, or with `false`, there is no limit. */
export interface RequestRates {
  readonly perSession?: RequestRate | false | undefined
  readonly perTenant?: RequestRate | false | undefined
}

export const requestLimitNames = ['per_session', 'per_tenant'] as const

export type RequestLimitName = (typeof requestLimitNames)[number]

interface Limited {
  readonly limit: KeyedLimit
  readonly message: string
}

/**
 * How fast requests may come, whatever they are for. It stands before all else, so that a client that calls in a loop
 * costs next to nothing: no record, no call and no log are made of a request that is refused here.
 */
export class RequestLimits {
  readonly #clock: Clock
  readonly #refused: (limit: RequestLimitName) => void
  #settings = ''
  #session: Limited | undefined
  #tenant: Limited | undefined

  /** `refused` is told of each request that is refused. */
  constructor(clock: Clock, rates: RequestRates, refused: (limit: RequestLimitName) => void) {
    this.#clock = clock
    this.#refused = refused
    this.tune(rates)
  }

  /** Other rates are in force. The same ones again change nothing. */
  tune(rates: RequestRates): void {
    const settings = JSON.stringify(rates)
    if (settings === this.#settings) return
    this.#settings = settings
    this.#session = this.#limited(rates.perSession, 'session')
    this.#tenant = this.#limited(rates.perTenant, 'tenant')
  }

  /** Why one more request comes too fast; undefined when it does not. `session`: where there is one. */
  refusal(session: string | undefined, countsAs: string): GatewayError | undefined {
    if (this.#session === undefined && this.#tenant === undefined) return undefined
    const bySession = session === undefined ? undefined : this.#take(this.#session, session, 'per_session')
    return bySession ?? this.#take(this.#tenant, countsAs, 'per_tenant')
  }

  #take(limited: Limited | undefined, key: string, name: RequestLimitName): GatewayError | undefined {
    const waitMs = limited?.limit.take(key) ?? 0
    if (limited === undefined || waitMs === 0) return undefined
    this.#refused(name)
    return gatewayError('rate_limited', limited.message, { retryAfterMs: Math.ceil(waitMs) })
  }

  #limited(given: RequestRate | false | undefined, whose: string): Limited | undefined {
    if (given === undefined || given === false) return undefined
    const { rate, burst = Math.max(1, Math.floor(perSecond(rate))) } = given
    return {
      limit: new KeyedLimit({ rate, burst }, this.#clock),
      message: `rate limit of ${formatRate(rate)} for the requests of one ${whose} exceeded`,
    }
  }
}
