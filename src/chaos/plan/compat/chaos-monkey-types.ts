import { z } from 'zod'
import { formatDuration } from '../../../units/duration.ts'
import { read, schemaOf, type Path } from './foreign.ts'

const probability = z.number().min(0).max(1).default(1)
const ms = z.int().min(0)

/** The fields of each type, as mcp-chaos-monkey has them. */
const schemas = {
  latency: z.strictObject({ delayMs: ms, probability }),
  error: z.strictObject({
    statusCode: z.int().min(400).max(599),
    message: z.string().optional(),
    probability,
  }),
  timeout: z.strictObject({ hangMs: ms, probability }),
  malformed: z.strictObject({ corruptResponse: z.boolean().default(true), probability }),
  'connection-refused': z.strictObject({ probability }),
  'connection-drop': z.strictObject({ afterMs: ms.optional(), probability }),
  'rate-limit': z.strictObject({ retryAfterSeconds: z.int().min(0), probability }),
  'schema-mismatch': z.strictObject({ missingFields: z.array(z.string().min(1)).default([]), probability }),
} as const

type Type = keyof typeof schemas

/** The types of faults that mcp-chaos-monkey has. */
export const chaosMonkeyTypes: readonly string[] = Object.keys(schemas)

/** A fault of ours, without what is the same for all. */
export type Meant = { readonly type: string; readonly rate: number } & Readonly<Record<string, unknown>>

/** Reads a fault config with keys in camelCase, and says what it means here. Throws `ForeignPlanError`. */
export function meaningOf(
  { type, ...fields }: Readonly<Record<string, unknown>>,
  path: Path,
): { readonly type: string; readonly what: Meant } {
  const known = schemaOf(schemas, type, path)
  return { type: known, what: translate(known, fields, path) }
}

function translate(type: Type, fields: unknown, path: Path): Meant {
  const as = <Name extends Type>(name: Name) => read(schemas[name], fields, path, name)
  switch (type) {
    case 'latency': {
      const { delayMs, probability: rate } = as('latency')
      return { type: 'conn.latency', rate, distribution: { kind: 'fixed', delay: formatDuration(delayMs) } }
    }
    case 'error': {
      const { statusCode: status, message, probability: rate } = as('error')
      return { type: 'http.status', rate, status, ...(message === undefined ? {} : saying(message)) }
    }
    case 'timeout': {
      const { hangMs, probability: rate } = as('timeout')
      return { type: 'conn.half_open', rate, hold: formatDuration(Math.max(1, hangMs)) }
    }
    case 'malformed': {
      const { corruptResponse, probability } = as('malformed')
      return { type: 'rpc.malformed', rate: corruptResponse ? probability : 0, kind: 'bad_json' }
    }
    case 'connection-refused':
      return { type: 'conn.refused', rate: as('connection-refused').probability }
    case 'connection-drop': {
      const { afterMs, probability: rate } = as('connection-drop')
      if (afterMs === undefined) return { type: 'conn.reset', rate, at: 'headers' }
      // A connection breaks by what has come over it; a stream can break at a time.
      return { type: 'sse.cut', rate, after: formatDuration(afterMs), afterEvents: 10_000 }
    }
    case 'rate-limit': {
      const { retryAfterSeconds, probability: rate } = as('rate-limit')
      return {
        type: 'limit.429',
        rate,
        retryAfter: formatDuration(retryAfterSeconds * 1_000),
        form: 'seconds',
      }
    }
    case 'schema-mismatch': {
      const { missingFields, probability } = as('schema-mismatch')
      if (missingFields.length === 0) return { type: 'result.drift', rate: 0, operators: 'auto' }
      return { type: 'result.drift', rate: probability, operators: missingFields.map(without) }
    }
  }
}

const saying = (message: string) => ({
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ error: message }),
})

/** A key at the top, as a JSON Pointer (RFC 6901) escapes it. */
const without = (key: string) => ({
  op: 'drop_required',
  path: `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`,
})
