import { secrecyOf, spread, step } from '../schema/schema-walk.ts'
import { config as schema, type Config } from '../schema/schema.ts'
import { redactArgs, REDACTED, redactUrls } from './redact-text.ts'

type Schemas = ReturnType<typeof spread>

/**
 * Returns a copy of `config` for display. `[redacted]` stands for the values of headers and of environment variables,
 * for tokens, for credentials in URLs and arguments, and for all text that came from `${…}`.
 */
export function redact(config: Config): unknown {
  return copy(config, spread(schema), interpolatedWithin(config))
}

function copy(value: unknown, schemas: Schemas, isInterpolated: (text: string) => boolean): unknown {
  if (typeof value !== 'object' || value === null) return value
  const secrecy = secrecyOf(schemas)
  const inside = (key: string | number, held: unknown): unknown => {
    if (typeof held !== 'string') return copy(held, step(schemas, key), isInterpolated)
    if (isInterpolated(held)) return REDACTED
    switch (secrecy ?? secrecyOf(step(schemas, key))) {
      case 'text':
        return REDACTED
      case 'url':
        return redactUrls(held)
      default:
        return held
    }
  }
  if (!Array.isArray(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, inside(key, held)]))
  }
  const items = value.map((held, index) => inside(index, held))
  return secrecy === 'args' ? redactArgs(items as string[]) : items
}

/** Returns `[redacted]` for a text of `value` that came from a variable, and any other text unchanged. */
export function shownText(text: string, value: object): string {
  return interpolatedWithin(value)(text) ? REDACTED : text
}

const texts = new WeakMap<object, ReadonlySet<string>>()

/** Remembers the texts from variables, for as long as any object within `value` lives. */
export function rememberInterpolated(value: object, interpolated: ReadonlySet<string>): void {
  const folded = new Set([...interpolated].map((text) => text.toLowerCase()))
  for (const object of objectsWithin(value)) texts.set(object, folded)
}

/**
 * Returns a function that is true for texts within `value` that came from a variable. It compares contents, so any text
 * equal to a secret counts. It works for copies of a config that still contain original objects.
 */
function interpolatedWithin(value: object): (text: string) => boolean {
  const known = new Set(objectsWithin(value).map((object) => texts.get(object)))
  return (text) => [...known].some((set) => set?.has(text.toLowerCase()))
}

function objectsWithin(value: unknown): object[] {
  if (typeof value !== 'object' || value === null) return []
  return [value, ...Object.values(value).flatMap(objectsWithin)]
}
