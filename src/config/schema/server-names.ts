/** Pattern of valid server names. Names appear in URLs and in tool names, which models must accept. */
export const serverNamePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/

/** Longest name, in characters. */
const LONGEST = 40

/**
 * Returns the gateway's name for a server that its config calls `written`, for example `microsoft/playwright-mcp`. A
 * valid name stays unchanged. Otherwise `-` replaces invalid characters, or `_` if `-` is part of the separator.
 * Undefined when nothing is left.
 */
export function slugOf(written: string, separator: string): string | undefined {
  if (serverNamePattern.test(written)) return written
  const filler = separator.includes('-') ? '_' : '-'
  const plain = written
    // Separates letters from their accents, so the accents can be dropped.
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .replace(/[^A-Za-z0-9_-]+/g, filler)
    .replaceAll(separator, filler)
    .replace(/^-+/, '')
    .slice(0, LONGEST)
    .replace(/[-_]+$/, '')
  return /[A-Za-z0-9]/.test(plain) ? plain : undefined
}

/** Returns true if `value` is a map, as in YAML and JSON. */
export function isPlainMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
