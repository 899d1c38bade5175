import { createHash, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
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
  // Behind a public address the operator's names are unknown unless given; browsers are stopped by their Origin.
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

/** Whether a browser asks on behalf of a page of another origin than the one it asks. */
export function isCrossOrigin(headers: Readonly<Record<string, string | string[] | undefined>>): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers
  if (typeof origin === 'string')
    return origin !== `http://${String(host)}` && origin !== `https://${String(host)}`
  return site === 'cross-site' || site === 'same-site'
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
