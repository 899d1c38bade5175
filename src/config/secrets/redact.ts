import { interpolatedWithin } from '../files/provenance.ts'
import { REDACTED, redactArgs, redactUrls } from './redact-text.ts'
import { config as schema, type Config } from '../schema/schema.ts'
import { secrecyOf, spread, step } from '../schema/schema-walk.ts'

type Schemas = ReturnType<typeof spread>

/**
 * A copy of `config` for people's eyes. `[redacted]` stands for the values of headers and of environment
 * variables, for tokens, for credentials in URLs and arguments, and for all text that came out of `${…}`.
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
