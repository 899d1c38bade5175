import type { Millis } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { SETTLED_MS } from '../../access/caller.ts'

/** The most open items of one kind at once, for all clients and for each client. */
export interface Share {
  readonly max: number
  readonly perClient: number
}

/** The config key of each limit for all clients, if any. The object's keys name the limits in metrics. */
const keys = {
  calls: 'gateway.maxInFlight',
  callers: undefined,
  connections: 'gateway.limits.connections',
  initializeParams: 'gateway.limits.memory',
  listens: 'gateway.sessions.max',
  pendingInputs: 'gateway.maxInFlight',
  answers: 'gateway.limits.memory',
  pipelined: undefined,
  sessions: 'gateway.sessions.max',
} as const

const PER_CLIENT = 'gateway.limits.perClient'

export type QuotaName = keyof typeof keys
export type Shares = Readonly<Record<QuotaName, Share>>

/** The name of an exceeded limit in the metric of refusals. */
export type QuotaLimit =
  | QuotaName
  | `${QuotaName}_per_client`
  | `${QuotaName}_per_tenant`
  | 'pendingInputs_per_session'
  | 'pipelined_per_connection'

export const quotaLimits: readonly QuotaLimit[] = [
  ...(Object.keys(keys) as QuotaName[]).flatMap((name) => [name, `${name}_per_client` as const]),
  'calls_per_tenant',
  'callers_per_tenant',
  'listens_per_tenant',
  'pendingInputs_per_tenant',
  'pendingInputs_per_session',
  'pipelined_per_connection',
]

/**
 * Retry time that a full quota tells a client, in milliseconds; an estimate, since the time of the next free place is
 * unknown.
 */
const RETRY_MS = 5_000

const halfOf = (max: number) => Math.max(1, Math.floor(max / 2))

/** The part of a client's places that is reserved for tenants with few places. */
const KEPT_FREE = 1 / 8

/** Amounts by key; removes a key whose amount falls to 0. */
class Count {
  readonly #amounts = new Map<string, { open: number }>()

  of(key: string): number {
    return this.#amounts.get(key)?.open ?? 0
  }

  add(key: string, amount: number): void {
    const count = this.#amounts.get(key)
    if (count === undefined) this.#amounts.set(key, { open: amount })
    else if ((count.open += amount) === 0) this.#amounts.delete(key)
  }
}

/** Counts each client's open items of one kind. Every `take` needs a `release`. */
export class Quota {
  share: Share
  readonly #name: QuotaName
  readonly #what: string
  readonly #refused: (limit: QuotaLimit) => void
  readonly #counts = new Count()
  #total = 0

  /** `what` names the items in messages. Calls `refused` for each refusal. */
  constructor(name: QuotaName, what: string, share: Share, refused: (limit: QuotaLimit) => void) {
    this.#name = name
    this.#what = what
    this.share = share
    this.#refused = refused
  }

  get total(): number {
    return this.#total
  }

  of(client: string): number {
    return this.#counts.of(client)
  }

  /** Returns the limit that another item of this amount would exceed; undefined when there is room. */
  exceeds(client: string, amount = 1): 'max' | 'perClient' | undefined {
    const { max, perClient } = this.share
    const total = this.#total + amount
    // Returns early: while the total is within the limit of one client, no client can exceed this limit.
    if (total <= perClient && total <= max) return undefined
    if (this.of(client) + amount > perClient && perClient < max) return 'perClient'
    return total > max ? 'max' : undefined
  }

  /** Returns and counts a refusal when a client may not open another item; undefined when there is room. */
  refusal(client: string, amount = 1): GatewayError | undefined {
    const limit = this.exceeds(client, amount)
    return limit === undefined ? undefined : this.refuse(limit)
  }

  /** Counts a refusal at this limit, and returns its error. */
  refuse(limit: 'max' | 'perClient'): GatewayError {
    const ofClient = limit === 'perClient'
    this.#refused(ofClient ? `${this.#name}_per_client` : this.#name)
    const whose = ofClient ? ' of this client' : ''
    const key = ofClient ? PER_CLIENT : keys[this.#name]
    const where = key === undefined ? '' : `, ${key}`
    const message = `too many ${this.#what}${whose} (limit ${this.share[limit]}${where})`
    return gatewayError('overloaded', message, { retryAfterMs: RETRY_MS })
  }

  /**
   * True when a tenant with `own` places must not get another place. In the last eighth of a client's places, no tenant
   * may hold more places than are free.
   */
  isKeptFrom(client: string, own: number): boolean {
    const { perClient } = this.share
    const free = perClient - this.of(client)
    return free <= Math.floor(perClient * KEPT_FREE) && own >= free
  }

  /** True when `own` places are all places of a client except the last eighth. */
  isNearlyAll(own: number): boolean {
    const { perClient } = this.share
    return own >= perClient - Math.ceil(perClient * KEPT_FREE)
  }

  /** Counts a refusal of a tenant in the last eighth of its client's places, and returns its error. */
  refuseTenant(): GatewayError {
    this.#refused(`${this.#name}_per_tenant`)
    const message = `nearly too many ${this.#what} of this client (limit ${this.share.perClient}, ${PER_CLIENT}): this tenant already holds as many places as are free; for their first second, all new tenants count as one tenant`
    return gatewayError('overloaded', message, { retryAfterMs: SETTLED_MS })
  }

  take(client: string, amount = 1): void {
    this.#counts.add(client, amount)
    this.#total += amount
  }

  /** Gives back what `take` took, with the same amount. */
  release(client: string, amount = 1): void {
    this.#counts.add(client, -amount)
    this.#total -= amount
  }
}

/** The owner of a call that waits for its agent. `session`: undefined for agents without sessions. */
export interface Asked {
  readonly client: string
  readonly tenant: string
  readonly session: string | undefined
}

/**
 * Counts calls that wait for an answer of their agent, which may take minutes. A tenant may hold half of its client's
 * places, and a session a quarter. In the last eighth of the places, a tenant may hold as many places as are free. So
 * agents that never answer leave room for other agents behind the same address.
 */
export class PendingInputQuota {
  readonly #all: Quota
  readonly #ofTenants = new Count()
  readonly #ofSessions = new Count()
  readonly #refused: (limit: QuotaLimit) => void

  /** `all` counts the calls by client. Calls `refused` for each refusal at the limit of a tenant or session. */
  constructor(all: Quota, refused: (limit: QuotaLimit) => void) {
    this.#all = all
    this.#refused = refused
  }

  get share(): Share {
    return this.#all.share
  }

  set share(share: Share) {
    this.#all.share = share
  }

  /** Returns and counts a refusal when another call must not wait; undefined when there is room. */
  refusal(asked: Asked): GatewayError | undefined {
    const { perClient } = this.#all.share
    const ofTenant = halfOf(perClient)
    const ofSession = halfOf(ofTenant)
    const { session } = asked
    if (session !== undefined && this.#ofSessions.of(session) >= ofSession)
      return this.#refuse('session', ofSession, 'a quarter')
    const own = this.#ofTenants.of(tenantKey(asked))
    // All agents with new names count as one tenant. A session of such an agent without a waiting call gets a place
    // even when this tenant's limit is reached.
    const isNew = asked.tenant === '' && session !== undefined && this.#ofSessions.of(session) === 0
    if (own >= ofTenant && !isNew) return this.#refuse('tenant', ofTenant, 'half')
    const full = this.#all.refusal(asked.client)
    if (full !== undefined) return full
    return this.#all.isKeptFrom(asked.client, own) ? this.#all.refuseTenant() : undefined
  }

  take(asked: Asked): void {
    this.#all.take(asked.client)
    this.#ofTenants.add(tenantKey(asked), 1)
    if (asked.session !== undefined) this.#ofSessions.add(asked.session, 1)
  }

  /** Gives back the place that `take` took for `asked`. */
  release(asked: Asked): void {
    this.#all.release(asked.client)
    this.#ofTenants.add(tenantKey(asked), -1)
    if (asked.session !== undefined) this.#ofSessions.add(asked.session, -1)
  }

  #refuse(whose: 'tenant' | 'session', limit: number, part: string): GatewayError {
    this.#refused(`pendingInputs_per_${whose}`)
    const names = whose === 'tenant' ? '; all new names count as one tenant' : ''
    const message = `too many ${WAITING} of this ${whose} (limit ${limit}, ${part} of the share that ${PER_CLIENT} gives${names})`
    return gatewayError('overloaded', message, { retryAfterMs: RETRY_MS })
  }
}

const WAITING = 'calls that wait for answers'

/**
 * Places are counted for each tenant only once this part of a client's places is in use. So a usual call costs one
 * comparison.
 */
const TOLD_APART_FROM = 1 / 2

/**
 * Counts the places of a quota by tenant. In the last eighth of a client's places, a tenant may hold as many places as
 * are free. So a tenant with a thousand calls leaves room for other tenants behind the same address.
 */
export class TenantPlaces {
  readonly #all: Quota
  readonly #ofTenants = new Count()

  /** `all` counts the same places by client. */
  constructor(all: Quota) {
    this.#all = all
  }

  /**
   * Takes places for a tenant. Returns a function that gives the places back, or an error; undefined while tenants are
   * not counted.
   */
  begin(asked: Pick<Asked, 'client' | 'tenant'>, amount = 1): GatewayError | (() => void) | undefined {
    const { client } = asked
    const apart = this.#all.share.perClient * TOLD_APART_FROM
    if (this.#all.total < apart || this.#all.of(client) < apart) return undefined
    const key = tenantKey(asked)
    if (this.#all.isKeptFrom(client, this.#ofTenants.of(key))) return this.#all.refuseTenant()
    this.#ofTenants.add(key, amount)
    return () => this.#ofTenants.add(key, -amount)
  }
}

/**
 * Includes the client's address: the same tenant name at another address is another tenant, because any client may use
 * any name.
 */
const tenantKey = ({ client, tenant }: Pick<Asked, 'client' | 'tenant'>) => `${client}\n${tenant}`

/** An open item of a client, such as a session. A quota may end an idle item to make room for another. */
export interface Holding {
  readonly client: string
  /** Digest of the credentials that opened the item; tells agents behind one address apart. */
  readonly principal: string
  /** How long the item has been unused, in milliseconds; 0 while it must not be ended. */
  readonly idleMs: Millis
  end(): void
}

/** The items of a client with their amounts, and the sums by principal. */
interface Held {
  readonly amounts: Map<Holding, number>
  readonly byPrincipal: Map<string, number>
}

/**
 * A quota that ends idle items to make room for a new item. Ends the longest idle item of the client that has the most,
 * if that client has more than the new item's client would have. Behind a shared address, ends an item of the principal
 * that has the most. Without such a client or principal, ends only an item larger than the new item. The owner of an
 * ended item gets an error at its next request, and must begin anew.
 */
export class EvictingQuota extends Quota {
  /** The items by client. */
  readonly #held = new Map<string, Held>()

  /**
   * Ends idle items until `amount` fits for a client. Returns the refusal when there is still no room. `spare` returns
   * another item to end when no client has too much.
   */
  makeRoom(
    client: string,
    principal: string,
    amount = 1,
    spare: (limit: 'max' | 'perClient') => Holding | undefined = () => undefined,
  ): GatewayError | undefined {
    for (;;) {
      const limit = this.exceeds(client, amount)
      if (limit === undefined) return undefined
      const idlest =
        amount > this.share[limit] ? undefined : (this.#evictable(client, principal, amount) ?? spare(limit))
      if (idlest === undefined) return this.refuse(limit)
      this.drop(idlest)
      idlest.end()
    }
  }

  hold(holding: Holding, amount = 1): void {
    const { client, principal } = holding
    let own = this.#held.get(client)
    if (own === undefined) this.#held.set(client, (own = { amounts: new Map(), byPrincipal: new Map() }))
    own.amounts.set(holding, amount)
    own.byPrincipal.set(principal, (own.byPrincipal.get(principal) ?? 0) + amount)
    this.take(client, amount)
  }

  /** Gives back the item's amount. Safe to call twice. */
  drop(holding: Holding): void {
    const { client, principal } = holding
    const own = this.#held.get(client)
    const amount = own?.amounts.get(holding)
    if (own === undefined || amount === undefined) return
    own.amounts.delete(holding)
    const left = (own.byPrincipal.get(principal) ?? 0) - amount
    if (left > 0) own.byPrincipal.set(principal, left)
    else own.byPrincipal.delete(principal)
    if (own.amounts.size === 0) this.#held.delete(client)
    this.release(client, amount)
  }

  #evictable(client: string, principal: string, amount: number): Holding | undefined {
    const isOwn = this.of(client) + amount > this.share.perClient
    const hoard = isOwn ? this.#hoardWithin(client, principal, amount) : this.#hoardOf(client, amount)
    return idlestOf(hoard) ?? idlestOf(this.#larger(client, amount))
  }

  /**
   * Finds the client that has the most, and more than `client` would have. Returns the items of its largest principal;
   * empty without such a client.
   */
  #hoardOf(client: string, amount: number): Iterable<Holding> {
    let most = this.of(client) + amount
    let greediest: string | undefined
    for (const name of this.#held.keys()) if (this.of(name) > most) [greediest, most] = [name, this.of(name)]
    return greediest === undefined ? [] : this.#hoardWithin(greediest)
  }

  /**
   * Returns the items of the principal that has the most at one address; empty unless it has more than `principal`
   * would have.
   */
  #hoardWithin(client: string, principal?: string, amount = 0): Holding[] {
    const own = this.#held.get(client)
    if (own === undefined) return []
    const { amounts, byPrincipal } = own
    let most = principal === undefined ? 0 : (byPrincipal.get(principal) ?? 0) + amount
    let greediest: string | undefined
    for (const [name, sum] of byPrincipal) if (sum > most) [greediest, most] = [name, sum]
    return greediest === undefined ? [] : [...amounts.keys()].filter((held) => held.principal === greediest)
  }

  #larger(client: string, amount: number): Holding[] {
    // Skips the search, because no item is larger than the smallest amount, 1. So repeated refusals stay cheap.
    if (amount <= 1) return []
    const own = this.#held.get(client)?.amounts ?? []
    return [...own].filter(([, each]) => each > amount).map(([held]) => held)
  }
}

function idlestOf(holdings: Iterable<Holding>): Holding | undefined {
  let idlest: Holding | undefined
  let longestMs = 0
  for (const holding of holdings) {
    const { idleMs } = holding
    if (idleMs > longestMs) [idlest, longestMs] = [holding, idleMs]
  }
  return idlest
}

/** The limits on each client's share of common resources. A client is identified by the address of its connection. */
export class Quotas {
  readonly calls: Quota
  readonly tenantCalls: TenantPlaces
  readonly tenantListens: TenantPlaces
  /** Callers of the modern era: clients with equal capabilities and credentials share one caller. */
  readonly callers: Quota
  readonly connections: Quota
  /** Bytes of clients' descriptions, kept for sessions and for callers of the modern era. */
  readonly initializeParams: EvictingQuota
  readonly listens: Quota
  /** Calls that wait for an answer of their client. */
  readonly pendingInputs: PendingInputQuota
  /** Bytes of open questions, and of answers kept until their clients fetch them. */
  readonly answers: Quota
  /** Requests that wait for an earlier reply on their connection. */
  readonly pipelined: Quota
  readonly sessions: EvictingQuota
  readonly refused: (limit: QuotaLimit) => void

  constructor(shares: Shares, refused: (limit: QuotaLimit) => void) {
    const quota = (name: QuotaName, what: string) => new Quota(name, what, shares[name], refused)
    this.refused = refused
    this.calls = quota('calls', 'calls')
    this.tenantCalls = new TenantPlaces(this.calls)
    this.callers = quota('callers', 'kinds of clients at once')
    this.connections = quota('connections', 'connections')
    this.listens = quota('listens', 'subscriptions')
    this.tenantListens = new TenantPlaces(this.listens)
    this.pendingInputs = new PendingInputQuota(quota('pendingInputs', WAITING), refused)
    this.answers = quota('answers', 'bytes of questions and answers that wait for their client')
    this.pipelined = quota('pipelined', 'pipelined requests')
    const kept = 'bytes of clientInfo and capabilities'
    this.initializeParams = new EvictingQuota('initializeParams', kept, shares.initializeParams, refused)
    this.sessions = new EvictingQuota('sessions', 'sessions', shares.sessions, refused)
  }

  /** Sets new limits. Open items stay open, even above the new limits. */
  tune(shares: Shares): void {
    for (const name of Object.keys(shares) as QuotaName[]) this[name].share = shares[name]
  }
}

/**
 * Number of 16-bit groups of an IPv6 address that identify a client: the /64 prefix, since one owner controls all its
 * addresses.
 */
const PREFIX_GROUPS = 4

/** Returns the client's name: its IPv4 address, or the /64 prefix of its IPv6 address. */
export function clientOf(address: string | undefined): string {
  if (address === undefined || !address.includes(':')) return address ?? ''
  if (address.startsWith('::ffff:') && address.includes('.')) return address.slice('::ffff:'.length)
  const [left = '', right] = address.split('::')
  const head = left === '' ? [] : left.split(':')
  const tail = right === undefined || right === '' ? [] : right.split(':')
  const zeros = right === undefined ? 0 : Math.max(0, 8 - head.length - tail.length)
  return `${[...head, ...Array.from({ length: zeros }, () => '0'), ...tail].slice(0, PREFIX_GROUPS).join(':')}::/64`
}
