/** Versions of the legacy era, newest first. */
export const legacyVersions = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const

export type LegacyVersion = (typeof legacyVersions)[number]

/** What a client without the header speaks, by the specification of 2025-06-18. */
export const ASSUMED_VERSION: LegacyVersion = '2025-03-26'

export const LATEST_LEGACY: LegacyVersion = legacyVersions[0]

export function isLegacyVersion(value: unknown): value is LegacyVersion {
  return (legacyVersions as readonly unknown[]).includes(value)
}

/** The version to answer an `initialize` with: the asked one when known, else our newest. */
export function negotiate(asked: unknown): LegacyVersion {
  return isLegacyVersion(asked) ? asked : LATEST_LEGACY
}

/** Only one version ever had JSON-RPC batches. */
export function allowsBatches(version: string): boolean {
  return version === '2025-03-26'
}

/**
 * The value of a header that stands in a request once, or several times alike: proxies and clients that each add it make `X, X` of
 * it. As it is when its parts differ.
 */
export function onceGiven(header: string): string {
  if (!header.includes(',')) return header
  const [first = '', ...others] = header.split(',').map((part) => part.trim())
  return others.every((other) => other === first) ? first : header
}
