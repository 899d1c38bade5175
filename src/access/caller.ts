import { hash } from 'node:crypto'
import type { InboundHeaders } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { namedTenant, shareOfClient } from '../policies/state/sameness.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { clip, Recent } from '../units/recent.ts'
import type { IncomingHttpHeaders } from 'node:http'
import { isOfOneRequest } from '../protocol/task.ts'
import type { Server } from '../registry/server.ts'

/** The tenant of a request, and the tenant whose limits the request counts in. */
export interface Tenancy {
  /**
   * Name from the header or from the client; empty without both. At most 64 characters: a longer name ends in a digest.
   */
  readonly tenant: string
  /**
   * Name of the share of limits: the tenant's own, or the share of all new names. A client without the header never
   * uses the share of a tenant named by the header.
   */
  readonly countsAs: string
}

/** Longest tenant name kept unchanged, in characters. */
const LONGEST = 64

/**
 * Least time between the first and a later request with a new name, until the name gets its own share, in milliseconds.
 */
export const SETTLED_MS: Millis = 1_000

/** Most remembered settled names, and most new names; the names unused for longest are forgotten. */
const MAX_NAMES = 10_000

/** Most tenants of a session at a time, and how long a tenant counts after its last request, in milliseconds. */
const MAX_OF_SESSION = 8
const IDLE_MS: Millis = 60_000

/** Name of the share of all new names. It is longer than any tenant's name, so no tenant can use it. */
const NEWCOMERS = 'newcomers'.padEnd(LONGEST + 1, '.')

/** Length of the digest at the end of a long name, in characters. */
const DIGEST = 22

/** Returns a name of up to 64 characters unchanged; a longer name as its beginning and a digest of the whole. */
function shortened(name: string): string {
  if (name.length <= LONGEST) return name
  return `${clip(name, LONGEST - DIGEST - 1)}…${hash('sha256', name, 'base64url').slice(0, DIGEST)}`
}

/** Returns the name that a client gives itself; empty without a name. */
function nameOf(clientInfo: unknown): string {
  const name = isObject(clientInfo) ? clientInfo.name : undefined
  return typeof name === 'string' ? name : ''
}

/**
 * Decides which tenant a request counts for. Clients choose their names, so a client could get a new share with a new
 * name for each call. So all new names share one share. A name gets its own share when it comes again after a second.
 * New names never push out settled names.
 */
export class Tenancies {
  readonly #settled = new Recent<true>(MAX_NAMES)
  /** Time of the first request with each new name. */
  readonly #newcomers = new Recent<Millis>(MAX_NAMES)

  /**
   * Returns the tenancy of a request. `clientInfo` is the client's description of itself; `own` limits the tenants of
   * its session, if any.
   */
  of(headers: InboundHeaders, clientInfo: unknown, now: Millis, own?: SessionTenants): Tenancy {
    const named = namedTenant(headers)
    const tenant = shortened(named ?? nameOf(clientInfo))
    if (tenant === '') return { tenant, countsAs: tenant }
    const share = named === undefined ? shareOfClient(tenant) : tenant
    const known = own?.lately(share, now)
    if (known !== undefined) return known
    const countsAs = own === undefined || own.admits(share, now) ? this.#identity(share, now) : own.others
    const tenancy = { tenant, countsAs }
    if (countsAs === share) own?.note(tenancy, now)
    return tenancy
  }

  #identity(name: string, now: Millis): string {
    if (this.#settled.get(name) === true || this.#isSettling(name, now)) return name
    return NEWCOMERS
  }

  /** Records a new name. Returns true when the name gets its own share. */
  #isSettling(name: string, now: Millis): boolean {
    const firstAt = this.#newcomers.peek(name)
    if (firstAt === undefined) {
      this.#newcomers.set(name, now)
      return false
    }
    if (now - firstAt < SETTLED_MS) return false
    this.#newcomers.delete(name)
    this.#settled.set(name, true)
    return true
  }
}

/** The tenants of a session, usually one. Beyond `MAX_OF_SESSION` at a time, all further tenants use one share. */
export class SessionTenants {
  /** Name of the share of the further tenants. */
  readonly others: string
  /** Time of the last request of each tenant, to the second. */
  readonly #names = new Map<string, Millis>()
  /** The latest settled tenant, cached because most sessions name the same tenant in every request. */
  #latest: Tenancy | undefined
  #foundAt: Millis = 0

  /** `session`: a unique name of the session. */
  constructor(session: string) {
    this.others = `others of session ${session}`.padEnd(LONGEST + 1, '.')
  }

  /** The share of the latest settled tenant; empty when there was none. */
  get current(): string {
    return this.#latest?.countsAs ?? ''
  }

  /** Returns the latest tenancy if it uses this share and is less than a second old. */
  lately(share: string, now: Millis): Tenancy | undefined {
    return this.#latest?.countsAs === share && now - this.#foundAt < SETTLED_MS ? this.#latest : undefined
  }

  note(tenancy: Tenancy, now: Millis): void {
    this.#latest = tenancy
    this.#foundAt = now
  }

  /** Returns true when a tenant is known in this session, or the session has room for it. */
  admits(name: string, now: Millis): boolean {
    const usedAt = this.#names.get(name)
    if (usedAt === undefined && this.#names.size >= MAX_OF_SESSION && !this.#dropIdle(now)) return false
    if (usedAt === undefined || now - usedAt >= SETTLED_MS) this.#names.set(name, now)
    return true
  }

  #dropIdle(now: Millis): boolean {
    for (const [name, usedAt] of this.#names) if (now - usedAt >= IDLE_MS) this.#names.delete(name)
    return this.#names.size < MAX_OF_SESSION
  }
}

/** The endpoint of an agent: `server` is undefined for the endpoint for all servers. */
interface Looking {
  readonly endpoint: { readonly server: string | undefined }
}

/** The servers of one generation, by name. */
export type Servers = ReadonlyMap<string, Server>

/** The names of headers that servers see, by generation and endpoint; `''` is the endpoint for all servers. */
const shownNames = new WeakMap<Servers, Map<string, readonly string[]>>()

/**
 * Returns the names of the agent headers that the servers of an endpoint see. Servers may tell agents apart by these
 * headers.
 */
function namesFor({ endpoint: { server } }: Looking, servers: Servers): readonly string[] {
  let known = shownNames.get(servers)
  if (known === undefined) shownNames.set(servers, (known = new Map<string, readonly string[]>()))
  let names = known.get(server ?? '')
  if (names === undefined) {
    const seen = server === undefined ? [...servers.values()] : [servers.get(server)]
    names = [...new Set(seen.flatMap((each) => namesOf(each)))].sort()
    known.set(server ?? '', names)
  }
  return names
}

function namesOf(server: Server | undefined): string[] {
  if (server === undefined || server.config.type === 'stdio') return []
  const { forwardHeaders } = server.config
  return Object.keys(forwardHeaders).filter((name) => !isOfOneRequest(forwardHeaders[name]!))
}

/**
 * Returns the agent headers that the servers of the request's endpoint see, except headers that belong to a single
 * request.
 */
export function shownHeaders(
  incoming: Looking & { readonly headers: IncomingHttpHeaders },
  servers: Servers,
): Record<string, string> {
  const shown: Record<string, string> = {}
  for (const name of namesFor(incoming, servers)) {
    const value = incoming.headers[name]
    if (typeof value === 'string') shown[name] = value
  }
  return shown
}

/**
 * Returns a digest of a request's `Authorization`, because the secret itself is not needed; empty without the header.
 */
export function principalOf({ authorization }: InboundHeaders): string {
  return typeof authorization === 'string' ? hash('sha256', authorization, 'base64url') : ''
}

/**
 * Returns a digest that identifies the sender of a request without a session: of the tenant in the header, else of
 * `Authorization`. With a tenant, the token does not matter.
 */
export function sessionlessPrincipalOf(headers: InboundHeaders): string {
  const tenant = namedTenant(headers)
  return tenant === undefined ? principalOf(headers) : hash('sha256', `tenant\n${tenant}`, 'base64url')
}

/** Returns the headers to store for a session, without the secret `Authorization`, which never goes to a server. */
export function withoutAuthorization(headers: InboundHeaders): InboundHeaders {
  const { authorization: _, ...rest } = headers
  return rest
}

/** The endpoint, headers and principal that opened a session. */
export interface Opened extends Looking {
  readonly headers: InboundHeaders
  readonly principal: string
}

/**
 * True when a request has the credentials of its session: the same `Authorization` and the same headers for servers.
 * Ignores headers that belong to a single request. A missing header counts as different, because servers would get the
 * session's header.
 */
export function bearsCredentialsOf(session: Opened, headers: InboundHeaders, servers: Servers): boolean {
  if (principalOf(headers) !== session.principal) return false
  for (const name of namesFor(session, servers)) if (headers[name] !== session.headers[name]) return false
  return true
}
