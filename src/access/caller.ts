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

/** Time from the first to the second sight of a name until the name becomes a tenant, in milliseconds. */
export const SETTLED_MS: Millis = 1_000

/** Most remembered names of each kind; the names unused for longest are forgotten. */
const MAX_NAMES = 10_000

/** Most tenants of a session at a time, and how long a tenant counts after its last request, in milliseconds. */
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
 * Decides which tenant a request counts for. Clients choose names freely: a new name for each call would give a new
 * share each time. So a name is a newcomer until seen again after a second, and all newcomers share. New names never
 * push out settled names.
 */
export class Tenancies {
  readonly #settled = new Recent<true>(MAX_NAMES)
  /** When each newcomer was first seen. */
  readonly #newcomers = new Recent<Millis>(MAX_NAMES)

  /** `clientInfo` is the client's own description; `own` counts the tenants of its session, if any. */
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

  /** Records a newcomer; true when the name has settled. */
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

/** The tenants of a session, usually one; beyond a few at a time, all others share. */
export class SessionTenants {
  /** The share of the surplus tenants. */
  readonly others: string
  /** When each tenant was last seen, to the second. */
  readonly #names = new Map<string, Millis>()
  /** The latest settled tenant and its time: most sessions name the same tenant in every request. */
  #latest: Tenancy | undefined
  #foundAt: Millis = 0

  /** `session` is unique. */
  constructor(session: string) {
    this.others = `others of session ${session}`.padEnd(LONGEST + 1, '.')
  }

  /** The tenant of the last request; empty when no request named a separately counted tenant. */
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

  /** Whether a tenant is among the tenants this session may have. */
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

/** The servers an agent sees: one server, or all (undefined). */
interface Looking {
  readonly endpoint: { readonly server: string | undefined }
}

/** The servers of one generation. */
export type Servers = ReadonlyMap<string, Server>

/** The headers shown to servers, by generation and endpoint; `''` is the aggregate endpoint. */
const shownNames = new WeakMap<Servers, Map<string, readonly string[]>>()

/** Returns the agent headers that the servers behind an endpoint see and may tell agents apart by. */
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

/** Returns the agent headers its servers see, except headers of a single request. */
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

/** Returns a digest of a request's `Authorization`, since nobody needs the secret. Empty without the header. */
export function principalOf({ authorization }: InboundHeaders): string {
  return typeof authorization === 'string' ? hash('sha256', authorization, 'base64url') : ''
}

/** Returns a digest of the sender of a request without a session: of the named tenant, whatever its token, or of `Authorization`. */
export function sessionlessPrincipalOf(headers: InboundHeaders): string {
  const tenant = namedTenant(headers)
  return tenant === undefined ? principalOf(headers) : hash('sha256', `tenant\n${tenant}`, 'base64url')
}

/** Returns headers to remember: `Authorization` never goes to a server, so a digest suffices. */
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
 * Whether a request bears its session's credentials: the same `Authorization` and the same headers shown to servers,
 * except headers of a single request. A missing header differs too, since servers would get the session's header.
 */
export function bearsCredentialsOf(session: Opened, headers: InboundHeaders, servers: Servers): boolean {
  if (principalOf(headers) !== session.principal) return false
  for (const name of namesFor(session, servers)) if (headers[name] !== session.headers[name]) return false
  return true
}
