import { hash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { InboundHeaders } from '../../mesh/call.ts'
import { namedTenant } from '../../policies/state/sameness.ts'
import { isOfOneRequest } from '../../protocol/trace-parent.ts'
import type { Server } from '../../registry/server.ts'

/** The servers that an agent looks onto: one, or all (undefined). */
interface Looking {
  readonly endpoint: { readonly server: string | undefined }
}

/** Those of one generation. */
export type Servers = ReadonlyMap<string, Server>

/** Which headers servers get to see, by the servers of one generation and by the endpoint; `''` is that of all. */
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

/** Whoever sends a request, as its `Authorization` says: a digest, for nobody needs the secret itself. Empty without one. */
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

/** What a session was opened with. */
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
