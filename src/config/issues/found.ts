import { looksLikeKey, redactUrls } from '../secrets/redact-text.ts'
import type { Secrecy } from '../secrets/secrets.ts'

const MAX_SHOWN = 60

/** What may be said about a value. */
export interface Showing {
  readonly secrecy: Secrecy | undefined
  /** The variables that it came from: they are named, their text is not shown. */
  readonly variables: readonly string[]
  /** Whether only the kind of thing matters, as where a map was expected. */
  readonly kindOnly: boolean
}

/** Names what was found in a config, in words that hold no secret. */
export function found(value: unknown, { secrecy, variables, kindOnly }: Showing): string {
  if (variables.length > 0) return `the value of ${variables.map((name) => `\${${name}}`).join(' and ')}`
  switch (typeof value) {
    case 'string':
      return kindOnly || hides(value, secrecy) ? 'text' : shorten(JSON.stringify(value))
    case 'number':
    case 'boolean':
      return kindOnly || secrecy !== undefined ? `a ${typeof value}` : String(value)
    default:
      return value === null || value === undefined ? 'nothing' : Array.isArray(value) ? 'a list' : 'a map'
  }
}

/** A URL that is wrong cannot be taken apart: one that may hold credentials is not shown at all. */
function hides(text: string, secrecy: Secrecy | undefined): boolean {
  return secrecy === 'url'
    ? /[@?#]/.test(text) || redactUrls(text) !== text || text.split('/').some(looksLikeKey)
    : secrecy !== undefined
}

const shorten = (text: string) => (text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…"`)
