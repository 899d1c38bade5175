import { z } from 'zod'
import { isObject } from '../../../protocol/jsonrpc.ts'
import { formatDuration } from '../../../units/duration.ts'
import {
  read,
  schemaOf,
  type PlanPath,
  commonOf,
  ForeignPlanError,
  type FaultConfig,
  type ForeignOptions,
} from './foreign.ts'
import { partsOf, type Targets, targetsOf } from './targets.ts'

const probability = z.number().min(0).max(1).default(1)
const ms = z.int().min(0)

/** The fields of each type, as in mcp-chaos-monkey. */
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
  // The code of mcp-chaos-monkey reads a time, but its documentation describes a number of bytes.
  'connection-drop': z.strictObject({ afterMs: ms.optional(), afterBytes: ms.optional(), probability }),
  'rate-limit': z.strictObject({ retryAfterSeconds: z.int().min(0), probability }),
  'schema-mismatch': z.strictObject({ missingFields: z.array(z.string().min(1)).default([]), probability }),
} as const

type Type = keyof typeof schemas

/** The fault types of mcp-chaos-monkey. */
export const chaosMonkeyTypes: readonly string[] = Object.keys(schemas)

/** A fault in our format, without the common fields. */
type Meant = { readonly type: string; readonly rate: number } & Readonly<Record<string, unknown>>

/** Translates a fault config with camelCase keys into our format. Throws `ForeignPlanError`. */
function meaningOf(
  { type, ...fields }: Readonly<Record<string, unknown>>,
  path: PlanPath,
): { readonly type: string; readonly what: Meant } {
  const known = schemaOf(schemas, type, path)
  return { type: known, what: translate(known, fields, path) }
}

function translate(type: Type, fields: unknown, path: PlanPath): Meant {
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
      return { type: 'conn.half_open', rate, hold: formatDuration(Math.max(1, hangMs)), then: 'fail' }
    }
    case 'malformed': {
      const { corruptResponse, probability } = as('malformed')
      return { type: 'rpc.malformed', rate: corruptResponse ? probability : 0, kind: 'bad_json' }
    }
    case 'connection-refused':
      return { type: 'conn.refused', rate: as('connection-refused').probability }
    case 'connection-drop': {
      const { afterMs, afterBytes, probability: rate } = as('connection-drop')
      if (afterMs !== undefined && afterBytes !== undefined)
        throw new ForeignPlanError([...path, 'afterBytes'], 'expected afterMs or afterBytes, not both')
      return { type: 'conn.reset', rate, at: dropAt(afterMs, afterBytes) }
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
      const { missingFields, probability: rate } = as('schema-mismatch')
      // Without fields, the fault hits calls but removes nothing, and the journal says so.
      return { type: 'result.drift', rate, operators: missingFields.map(without) }
    }
  }
}

/**
 * Returns the setting `at` of conn.reset. Without a time and bytes, the connection drops before the first byte of the
 * reply.
 */
function dropAt(afterMs: number | undefined, afterBytes: number | undefined): unknown {
  if (afterBytes !== undefined) return { afterBytes }
  return afterMs === undefined || afterMs === 0 ? 'headers' : { after: formatDuration(afterMs) }
}

const saying = (message: string) => ({
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ error: message }),
})

/** Returns an operator that removes a top-level key. The key is escaped as in a JSON Pointer (RFC 6901). */
const without = (key: string) => ({
  op: 'drop_required',
  path: `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`,
})

const aimedSchema = z.strictObject({
  target: z.string().min(1),
  config: z.record(z.string(), z.unknown()),
  durationMs: z.number().min(0).optional(),
})

const scenarioSchema = z.strictObject({
  name: z.string().optional(),
  description: z.string().optional(),
  faults: z.array(z.unknown()),
  expectedBehavior: z.string().optional(),
  assertions: z.array(z.string()).optional(),
})

/**
 * Translates a plan of mcp-chaos-monkey, and returns the faults, named after their type and place. The plan is a
 * scenario, a list, a single fault with its target, or a bare fault config for all calls. Keys may be camelCase or
 * snake_case. A target is an alias, or a glob over servers, or SERVER/TOOL. Throws `ForeignPlanError`.
 */
export function fromChaosMonkey(config: unknown, options: ForeignOptions): readonly FaultConfig[] {
  const entries = entriesOf(config)
  const targets = targetsOf(
    entries.flatMap(({ target }) => target ?? []),
    options,
  )
  return entries.map((entry, index) => translated(entry, index, targets, options))
}

/** A fault with its target; a fault without a target, such as a bare fault config, is aimed at everything. */
interface Aimed {
  readonly target: string | undefined
  readonly config: unknown
  readonly durationMs: number | undefined
  /** `path`: place of the fault; `within`: place of its config. */
  readonly path: PlanPath
  readonly within: PlanPath
}

function entriesOf(config: unknown): readonly Aimed[] {
  if (Array.isArray(config)) return config.map((entry, index) => aimedOf(entry, [index]))
  const whole = camelCased(config, [])
  if (!('faults' in whole)) return [aimedOf(config, [])]
  const { faults } = read(scenarioSchema, whole, [], 'a scenario')
  return faults.map((entry, index) => aimedOf(entry, ['faults', index]))
}

function aimedOf(entry: unknown, path: PlanPath): Aimed {
  const cased = camelCased(entry, path)
  if (!('config' in cased) && !('target' in cased))
    return { target: undefined, config: cased, durationMs: undefined, path, within: path }
  const { target, config, durationMs } = read(aimedSchema, cased, path, 'a fault')
  return { target, config, durationMs, path, within: [...path, 'config'] }
}

function translated(
  { target, config, durationMs, path, within }: Aimed,
  index: number,
  targets: Targets,
  options: ForeignOptions,
): FaultConfig {
  const { type, what } = meaningOf(camelCased(config, within), within)
  const { ttl, ...common } = commonOf(options)
  return {
    name: `${type}-${index + 1}`,
    ...what,
    ...matchOf(target === undefined ? '*' : targets(target, [...path, 'target'])),
    // In mcp-chaos-monkey, a fault without a duration never ends, and a fault with a duration of 0 ends at once.
    ttl: durationMs === undefined ? ttl : formatDuration(Math.max(1, Math.round(durationMs))),
    ...common,
  }
}

function matchOf(target: string): { readonly match?: { readonly server?: string; readonly tool?: string } } {
  const { server, tool } = partsOf(target)
  if (tool === undefined) return server === '*' ? {} : { match: { server } }
  return { match: server === '*' ? { tool } : { server, tool } }
}

/** Returns the same members under camelCase names. */
function camelCased(value: unknown, path: PlanPath): Record<string, unknown> {
  if (!isObject(value)) throw new ForeignPlanError(path, 'expected an object')
  const cased: Record<string, unknown> = {}
  for (const [key, member] of Object.entries(value)) {
    const name = key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
    if (Object.hasOwn(cased, name))
      throw new ForeignPlanError([...path, key], `appears twice: as ${name} and in snake_case`)
    cased[name] = member
  }
  return cased
}
