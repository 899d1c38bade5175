import { hash } from 'node:crypto'
import type { InboundHeaders } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import { namedTenant, shareOfClient } from '../policies/state/sameness.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { clip, Recent } from '../units/recent.ts'
import type { IncomingHttpHeaders } from 'node:http'
import { isOfOneRequest } from '../protocol/task.ts'
import type { Server } from '../registry/server.ts'

/** On whose behalf a request comes. */
export interface Tenancy {
  /** Name by the header or the client; at most 64 characters, a longer name ends in a digest; empty without either. */
  readonly tenant: string
  /** Share of limits: its own, or that of all new names. A client without the header has no part in a tenant's share. */
  readonly countsAs: string
}

/** Longest name of a tenant that is told apart, in characters. */
const LONGEST = 64

/** Between the first and the second sight of a name that makes it a tenant of its own, in milliseconds. */
export const SETTLED_MS: Millis = 1_000

/** Most names that are remembered, of each kind; those that have not been used for the longest are forgotten. */
const MAX_NAMES = 10_000

/** Most tenants that one session may have at a time, and for how long one of them counts after its last request, in milliseconds. */
const MAX_OF_SESSION = 8
const IDLE_MS: Millis = 60_000

/** Share of all new names. Longer than any name of a tenant, so no tenant can claim it. */
const NEWCOMERS = 'newcomers'.padEnd(LONGEST + 1, '.')

/** Length of the digest at the end of a long name, in characters. */
const DIGEST = 22

/** Returns a name of up to 64 characters unchanged; a longer name as its beginning and a digest of the whole. */
function shortened(name: string): string {
  if (name.length <= LONGEST) return name
  return `${clip(name, LONGEST - DIGEST - 1)}…${hash('sha256', name, 'base64url').slice(0, DIGEST)}`
}

/** Returns the name that a client gives itself, or an empty one. */
function nameOf(clientInfo: unknown): string {
  const name = isObject(clientInfo) ? clientInfo.name : undefined
  return typeof name === 'string' ? name : ''
}

/**
 * Whom requests count as. Names are for anybody to choose: with a new one for each call, a client would have a share
 * of its own each time. So a name is a newcomer until it is seen a second time after a second, and all newcomers
 * count as one. A name that was seen once puts out none that has settled.
 */
export class Tenancies {
  readonly #settled = new Recent<true>(MAX_NAMES)
  /** When each was seen first. */
  readonly #newcomers = new Recent<Millis>(MAX_NAMES)

  /** `clientInfo` is what the client says of itself; `own` counts the tenants of its session, if it has one. */
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

  /** Notes a newcomer, and tells whether it is none any more. */
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

/** The tenants of one session. Most have one; beyond a few at a time, all others count as one. */
export class SessionTenants {
  /** Whom those count as that are too many. */
  readonly others: string
  /** When each was seen last, to the second. */
  readonly #names = new Map<string, Millis>()
  /** The last one that counts as itself, and since when: most sessions have one tenant, and ask for it with every request. */
  #latest: Tenancy | undefined
  #foundAt: Millis = 0

  /** `session` is unique. */
  constructor(session: string) {
    this.others = `others of session ${session}`.padEnd(LONGEST + 1, '.')
  }

  /** The tenant that the last request counted as; empty when no request named one that counts as itself. */
  get current(): string {
    return this.#latest?.countsAs ?? ''
  }

  /** Returns the latest tenancy if it has this share and is less than a second old. */
  lately(share: string, now: Millis): Tenancy | undefined {
    return this.#latest?.countsAs === share && now - this.#foundAt < SETTLED_MS ? this.#latest : undefined
  }

  note(tenancy: Tenancy, now: Millis): void {
    this.#latest = tenancy
    this.#foundAt = now
  }

  /** Whether a tenant is one of those that this session may have. */
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

/** The servers that an agent looks onto: one, or all (undefined). */
interface Looking {
  readonly endpoint: { readonly server: string | undefined }
}

/** The servers of one generation. */
export type Servers = ReadonlyMap<string, Server>

/** The headers that servers get to see, by the servers of one generation and by the endpoint; `''` is the endpoint of all. */
const shownNames = new WeakMap<Servers, Map<string, readonly string[]>>()

/** The names of the headers of agents that the servers behind an endpoint get to see, and may tell agents apart by. */
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

/** The headers of an agent that the servers which it looks onto get to see, but for those of one request. */
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

/** Returns a digest of the `Authorization` of a request, for nobody needs the secret itself. Empty without `Authorization`. */
export function principalOf({ authorization }: InboundHeaders): string {
  return typeof authorization === 'string' ? hash('sha256', authorization, 'base64url') : ''
}

/** Returns a digest of the sender of a request without a session: of the named tenant, whatever its token, or of `Authorization`. */
export function sessionlessPrincipalOf(headers: InboundHeaders): string {
  const tenant = namedTenant(headers)
  return tenant === undefined ? principalOf(headers) : hash('sha256', `tenant\n${tenant}`, 'base64url')
}

/** Headers to remember: `Authorization` never goes to a server, so nobody needs more of it than a digest. */
export function withoutAuthorization(headers: InboundHeaders): InboundHeaders {
  const { authorization: _, ...rest } = headers
  return rest
}

/** The endpoint, the headers and the principal with which a session was opened. */
export interface Opened extends Looking {
  readonly headers: InboundHeaders
  readonly principal: string
}

/**
 * Whether a request bears the credentials of its session: the same `Authorization`, and the same of all headers that
 * servers behind it get to see, but for those of one request. One that is left out is another one too, for servers would get that of the session.
 */
export function bearsCredentialsOf(session: Opened, headers: InboundHeaders, servers: Servers): boolean {
  if (principalOf(headers) !== session.principal) return false
  for (const name of namesFor(session, servers)) if (headers[name] !== session.headers[name]) return false
  return true
}
