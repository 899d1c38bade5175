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

/** The limits on agents, and the keep-alive of their connections. */
export interface Guards {
  readonly limits: RequestLimits
  /** Delays rejections of clients that retry too soon. */
  readonly tarpit: Tarpit
  /** The limits on each client's share of common resources. */
  readonly quotas: Quotas
  /** Decides which tenant a request counts for. */
  readonly tenancies: Tenancies
  /** Logs an internal error while handling a request. Returns the text of the error answer. */
  readonly defect: (id: RequestId, cause: unknown) => string
  readonly unread: UnreadReplies
  /** Sends keep-alive comments to open replies without recent writes. */
  readonly keepAlive: KeepAlive
  /** Bounds the events of all sessions that are kept for resuming clients. */
  readonly replay: ReplayBudget
}

export interface RequestRate {
  readonly rate: Rate
  /** Most requests at once after a pause; default: the rate for one second, at least 1. */
  readonly burst?: number | undefined
}

/** The request rates for a session and for a tenant; `undefined` or `false`: no limit. */
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
 * Limits the rate of requests of each session and tenant. The check runs before the gateway makes a record, a call or a
 * log line. So a client that repeats requests in a loop costs little.
 */
export class RequestLimits {
  readonly #clock: Clock
  readonly #refused: (limit: RequestLimitName) => void
  #settings = ''
  #session: Limited | undefined
  #tenant: Limited | undefined

  /** Calls `refused` for each refused request. */
  constructor(clock: Clock, rates: RequestRates, refused: (limit: RequestLimitName) => void) {
    this.#clock = clock
    this.#refused = refused
    this.tune(rates)
  }

  /** Sets new rates; unchanged rates change nothing. */
  tune(rates: RequestRates): void {
    const settings = JSON.stringify(rates)
    if (settings === this.#settings) return
    this.#settings = settings
    this.#session = this.#limited(rates.perSession, 'session')
    this.#tenant = this.#limited(rates.perTenant, 'tenant')
  }

  /**
   * Counts a request. Returns an error when the request comes too fast; undefined otherwise. `session`: undefined
   * without a session.
   */
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
