/** The names that a server may have. A name stands in URLs, and in front of tools' names, which models have to take. */
export const serverNamePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/

/** Longest name, in characters. */
const LONGEST = 40

/**
 * The name by which the gateway knows a server that its config calls `written`, such as `microsoft/playwright-mcp` or
 * `My Notes (local)`: the same where that will do, else with `-` for whatever does not fit (`_` where `-` is part of the
 * separator). Undefined when nothing is left of it.
 */
export function slugOf(written: string, separator: string): string | undefined {
  if (serverNamePattern.test(written)) return written
  const filler = separator.includes('-') ? '_' : '-'
  const plain = written
    // Letters without their accents.
    .normalize('NFKD')
    .replace(/\p{Mark}/gu, '')
    .replace(/[^A-Za-z0-9_-]+/g, filler)
    .replaceAll(separator, filler)
    .replace(/^-+/, '')
    .slice(0, LONGEST)
    .replace(/[-_]+$/, '')
  return /[A-Za-z0-9]/.test(plain) ? plain : undefined
}

/** Whether `value` is a map as YAML and JSON have it. */
export function isPlainMap(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
