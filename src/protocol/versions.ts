import { locate, members, spliceOne } from './json-span.ts'
import { isObject, paramsOf } from './jsonrpc.ts'

/** Newest first. */
export const legacyVersions = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const

export type LegacyVersion = (typeof legacyVersions)[number]

/** The version of a client without a version header, by the specification of 2025-06-18. */
export const ASSUMED_VERSION: LegacyVersion = '2025-03-26'

export const LATEST_LEGACY: LegacyVersion = legacyVersions[0]

export function isLegacyVersion(value: unknown): value is LegacyVersion {
  return (legacyVersions as readonly unknown[]).includes(value)
}

/** Returns the version to answer `initialize` with: the requested version when known, else our newest. */
export function negotiate(asked: unknown): LegacyVersion {
  return isLegacyVersion(asked) ? asked : LATEST_LEGACY
}

/** Returns true only for 2025-03-26, the only version with JSON-RPC batches. */
export function allowsBatches(version: string): boolean {
  return version === '2025-03-26'
}

/**
 * Returns `X` for a header value `X, X`, which arises when both a client and a proxy add the header. Returns the header
 * unchanged when its parts differ.
 */
export function onceGiven(header: string): string {
  if (!header.includes(',')) return header
  const [first = '', ...others] = header.split(',').map((part) => part.trim())
  return others.every((other) => other === first) ? first : header
}

/** A family of protocol versions: with sessions, up to 2025-11-25, or without. */
export type Era = 'legacy' | 'modern'

export const MODERN_VERSION = '2026-07-28'

const PREFIX = 'io.modelcontextprotocol/'

/** Keys of `params._meta` for facts that a session holds in the legacy era. */
export const PROTOCOL_VERSION_KEY = `${PREFIX}protocolVersion`
export const CLIENT_INFO_KEY = `${PREFIX}clientInfo`
export const CLIENT_CAPABILITIES_KEY = `${PREFIX}clientCapabilities`
export const LOG_LEVEL_KEY = `${PREFIX}logLevel`

/** Keys of a result's or notification's `_meta`. */
export const SERVER_INFO_KEY = `${PREFIX}serverInfo`
export const SUBSCRIPTION_ID_KEY = `${PREFIX}subscriptionId`

/** Errors of the modern era, each sent with HTTP 400. */
export const HEADER_MISMATCH = -32020
export const MISSING_CAPABILITY = -32021
export const UNSUPPORTED_VERSION = -32022

const ENCODED = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/

/**
 * Encodes a value for a header. Plain ASCII without surrounding blanks stays unchanged; any other value becomes base64
 * of its UTF-8.
 */
export function encodeHeaderValue(value: string): string {
  const plain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?base64?')
  return plain ? value : `=?base64?${Buffer.from(value, 'utf8').toString('base64')}?=`
}

/** Returns the decoded value of a header; undefined when its base64 is broken. */
export function decodeHeaderValue(header: string): string | undefined {
  const trimmed = header.trim()
  if (!trimmed.startsWith('=?base64?') || !trimmed.endsWith('?=')) return trimmed
  const base64 = ENCODED.exec(trimmed)?.[1]
  if (base64 === undefined || base64.length % 4 !== 0) return undefined
  return Buffer.from(base64, 'base64').toString('utf8')
}

/** Keys by which a modern request describes its client; in the legacy era the session holds these facts. */
const envelope: ReadonlySet<string> = new Set([
  PROTOCOL_VERSION_KEY,
  CLIENT_INFO_KEY,
  CLIENT_CAPABILITIES_KEY,
  LOG_LEVEL_KEY,
])

/**
 * Removes the modern keys from a request. Servers of both eras refuse a request with these keys and a session header as
 * contradictory.
 */
export function withoutEnvelope(text: string): string {
  const meta = locate(text, ['params', '_meta'])
  if (meta === undefined || text[meta.start] !== '{') return text
  let kept = ''
  let isWhole = true
  for (const { key, keyStart, end } of members(text, meta.start)) {
    if (envelope.has(key)) isWhole = false
    else kept += (kept === '' ? '' : ',') + text.slice(keyStart, end)
  }
  return isWhole ? text : spliceOne(text, meta, `{${kept}}`)
}

/** Whether a request is modern, by its `_meta` or its header; never by its method, because both eras share methods. */
export function isModern(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  value: unknown,
): boolean {
  const version = headers['mcp-protocol-version']
  if (typeof version === 'string' && onceGiven(version) === MODERN_VERSION) return true
  const meta = isObject(value) ? paramsOf(value)._meta : undefined
  return isObject(meta) && PROTOCOL_VERSION_KEY in meta
}
