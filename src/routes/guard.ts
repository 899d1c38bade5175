import { createHash, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isLoopback } from '../config/schema/address.ts'

/** Whether a `Host` header may be served: this is what stops DNS rebinding. */
export function allowsHost(
  header: string | undefined,
  listenHost: string,
  allowed: readonly string[],
): boolean {
  const host = header === undefined ? undefined : hostOf(header)
  if (host === undefined) return false
  if (isLoopback(host) || [listenHost, ...allowed].some((name) => hostOf(name) === host)) return true
  // Behind a public address the operator's names are unknown unless given; browsers are stopped by their Origin, and by
  // `Sec-Fetch-Site` (see `isOfAnotherSite`) where they send none.
  return allowed.length === 0 && !isLoopback(hostOf(listenHost) ?? listenHost)
}

/** Verdicts on `Host` headers that are remembered; past it they are worked out again. */
const REMEMBERED = 64

/** `allowsHost` for one list of names, with a memory: the same few headers come with every request. */
export function hostGuard(
  listenHost: string,
  allowed: readonly string[],
): (header: string | undefined) => boolean {
  const verdicts = new Map<string | undefined, boolean>()
  return (header) => {
    let verdict = verdicts.get(header)
    if (verdict !== undefined) return verdict
    verdict = allowsHost(header, listenHost, allowed)
    if (verdicts.size < REMEMBERED) verdicts.set(header, verdict)
    return verdict
  }
}

/** Whether the page that a browser shows may call: pages of this machine, and those that the operator names. */
export function allowsOrigin(header: string | undefined, allowed: readonly string[]): boolean {
  if (header === undefined) return true
  if (allowed.some((origin) => origin.toLowerCase() === header.toLowerCase())) return true
  const host = hostnameOf(header)
  return host !== undefined && isLoopback(host)
}

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** Whether a browser asks on behalf of a page of another origin than the one it asks. */
export function isCrossOrigin(headers: Headers): boolean {
  const { origin, host } = headers
  if (isOfAnotherSite(headers)) return true
  return (
    typeof origin === 'string' && origin !== `http://${String(host)}` && origin !== `https://${String(host)}`
  )
}

/**
 * Whether a browser says that a page of another origin made it ask. Images, scripts, forms and links do so without an
 * `Origin`, which is why that alone does not tell.
 */
export function isOfAnotherSite({ 'sec-fetch-site': site }: Headers): boolean {
  return site === 'cross-site' || site === 'same-site'
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A request that stops faults and does nothing else: it asks for no more than reading does. */
    readonly stops?: boolean
  }
}

export interface ControlAccess {
  readonly token: string
  /** Whether whoever reaches the plane may read without the token, and stop faults. */
  readonly openToRead: boolean
}

/** Demands the control token, as a bearer token. */
export function demandToken(app: FastifyInstance, { token, openToRead }: ControlAccess): void {
  app.addHook('onRequest', (request, reply, done) => {
    if ((openToRead && changesNothing(request)) || hasToken(request.headers.authorization, token))
      return done()
    void reply
      .code(401)
      .header('www-authenticate', 'Bearer')
      .send({ error: 'unauthorized: send the control token as a bearer token' })
  })
}

function changesNothing({ method, is404, routeOptions }: FastifyRequest): boolean {
  return is404 || method === 'GET' || method === 'HEAD' || routeOptions.config.stops === true
}

/** Compares a bearer token in constant time, whatever the lengths. */
export function hasToken(authorization: string | undefined, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(authorization ?? ''), digest(`Bearer ${token}`))
}

/** The host of `host` or `host:port`, in the one way in which it can be compared. */
function hostOf(name: string): string | undefined {
  // An address to listen on has no brackets.
  return hostnameOf(`http://${isIPv6(name) ? `[${name}]` : name}`)
}

function hostnameOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '').toLowerCase() : undefined
}
