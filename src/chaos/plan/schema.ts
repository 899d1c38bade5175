import { z } from 'zod'
import { duration } from '../../units/duration.ts'
import { size } from '../../units/size.ts'
import { suggestions } from '../../units/suggest.ts'
import type { Side } from '../fault.ts'
import { faults as registered, type FaultRegistry } from '../faults/index.ts'
import { contradictions } from './checks.ts'
import { common, type Fault } from './common.ts'
import { seed } from './seed.ts'
import { isDeepStrictEqual } from 'node:util'
import { isObject } from '../../protocol/jsonrpc.ts'

/** Returns the schema of a plan's entry: a union over the types of `registry`, discriminated by `type`. */
export function faultSchema(registry: FaultRegistry = registered): z.ZodType<Fault> {
  const names = Object.keys(registry)
  const options = names.map((name) => option(name, registry))
  const union = z.discriminatedUnion('type', options as never, {
    error: ({ code, input }) => (code === 'invalid_union' ? unknownType(input, names) : undefined),
  })
  return union
}

function option(name: string, registry: FaultRegistry): z.ZodObject {
  const { schema, about, sides } = registry[name]!
  if (!(schema instanceof z.ZodObject))
    throw new Error(`fault type ${name}: its schema has to be a strictObject`)
  const own: z.ZodObject = schema
  const taken = Object.keys(own.shape).filter((key) => key in common || key === 'type' || key === 'side')
  if (taken.length > 0)
    throw new Error(`fault type ${name}: its fields ${taken.join(', ')} already belong to all faults`)
  const side = z.enum(sides as [Side, ...Side[]]).default(sides.includes('upstream') ? 'upstream' : 'client')
  return own
    .safeExtend({
      type: z.literal(name).describe(about),
      ...common,
      side: side.describe(
        'Below all policies (upstream, tests the gateway), or above all policies (client, tests the agent).',
      ),
    })
    .describe(about)
    .meta({ title: name })
}

function unknownType(input: unknown, names: readonly string[]): string {
  const type = (input as { type?: unknown }).type
  if (typeof type !== 'string') return 'missing; expected the type of the fault, such as conn.latency'
  const alike = suggestions(type, names)
  const meant = alike.length > 0 ? `did you mean ${alike.join(' or ')}?` : `there are ${names.join(', ')}`
  return `unknown type "${type.slice(0, 64)}"; ${meant}`
}

const journal = z.strictObject({
  file: z
    .string()
    .min(1)
    .optional()
    .describe(
      'JSON Lines file to append to. Default: memory only. Its key and head are in `gateway.stateDir`, or beside the file without a `stateDir`; `breakwater chaos verify` checks the file.',
    ),
  maxSize: size()
    .default(16 * 1024 ** 2)
    .describe('File size at which a new file begins.'),
  keep: z.int().min(1).max(100).default(4).describe('Older files kept, as FILE.1, FILE.2 …'),
})

const alias = z
  .string()
  .regex(/^[^\s/]+(\/[^\s/]+)?$/, 'expected SERVER or SERVER/TOOL, as globs')
  .describe('SERVER or SERVER/TOOL, as globs.')

/** Returns the schema of the block `chaos`, over the types of `registry`. */
export function chaosSchema(registry: FaultRegistry = registered) {
  return z
    .strictObject({
      enabled: z
        .boolean()
        .default(false)
        .describe(
          'Whether faults may be armed. A reload that changes `false` to `true` arms the plan, even after an operator disarmed it.',
        ),
      mode: z
        .enum(['act', 'shadow'])
        .default('act')
        .describe('`shadow` decides and journals without doing anything.'),
      seed: seed()
        .default(0)
        .describe(
          'Decides all draws: the same seed, plan and calls give the same faults. From 0 to 2^64 - 1; from 2^53 on in quotes.',
        ),
      persist: z
        .boolean()
        .default(false)
        .describe(
          'Whether the plan is armed again when the process starts; never after a kill that was not lifted.',
        ),
      maxTtl: duration({ min: 1 }).default(3_600_000).describe('Longest `ttl` of a fault.'),
      journal: journal.prefault({}).describe('The journal of all decisions.'),
      killFile: z.string().min(1).optional().describe('While this file exists, no fault does anything.'),
      lease: duration({ min: 1_000 })
        .optional()
        .describe(
          'A run ends when nobody has renewed the run for this time. Default: faults end only by their `ttl`.',
        ),
      debugHeader: z
        .boolean()
        .default(false)
        .describe(
          'Whether the reply header `x-breakwater-faults` names the faults that hit the call. Only for debugging: agents under test should not know about faults.',
        ),
      strict: z
        .boolean()
        .default(false)
        .describe('Whether a call fails when the engine fails, for tests; otherwise the call goes on.'),
      engineErrors: z
        .int()
        .min(1)
        .default(10)
        .describe('The engine disarms itself after this many errors, unless it is `strict`.'),
      approvers: z
        .array(z.string().trim().min(1).max(200))
        .min(1)
        .max(64)
        .optional()
        .describe(
          'Names of the approvers of guarded experiments. Default: everybody except the requester. An approval covers all stages of the run.',
        ),
      aliases: z
        .record(z.string().min(1).max(256), alias)
        .default({})
        .describe(
          'Our SERVER or SERVER/TOOL in place of each target named in plans of mcp-chaos-monkey. Example: `redis`, ' +
            'a service that is no MCP server, becomes the tool that uses the service.',
        ),
      faults: z.array(faultSchema(registry)).max(1_000).default([]).describe('The plan.'),
    })
    .superRefine((config, context) => {
      for (const { path, message } of contradictions(config, registry)) {
        context.addIssue({ code: 'custom', path: [...path], message })
      }
    })
    .prefault({})
    .describe('Faults, on purpose. Never in production.')
}

export const chaos = chaosSchema()

export type ChaosConfig = z.output<typeof chaos>

/** The differences between an old plan and a new plan, by the names of the faults. */
export interface PlanDiff {
  readonly added: readonly string[]
  readonly removed: readonly string[]
  readonly changed: readonly string[]
  readonly kept: readonly string[]
}

export function diffPlans(old: readonly Fault[], next: readonly Fault[]): PlanDiff {
  const before = new Map(old.map((fault) => [fault.name, fault]))
  const stay = next.filter(({ name }) => before.has(name))
  const isSame = (fault: Fault) => isDeepStrictEqual(fault, before.get(fault.name))
  const names = (faults: readonly Fault[]) => faults.map(({ name }) => name)
  const after = new Set(names(next))
  return {
    added: names(next.filter(({ name }) => !before.has(name))),
    removed: names(old.filter(({ name }) => !after.has(name))),
    changed: names(stay.filter((fault) => !isSame(fault))),
    kept: names(stay.filter(isSame)),
  }
}

/**
 * Returns a copy for display, of a fault or of a value with faults inside. Header values may be keys, so the values of
 * `match.header` and `headers` are hidden. The shape stays the same.
 */
export function withoutSecrets<Value>(value: Value): Value {
  return copied(value) as Value
}

function copied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copied)
  if (!isObject(value)) return value
  const isFault = typeof value.type === 'string'
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [
      key,
      key === 'match' ? withoutHeader(held) : key === 'headers' && isFault ? masked(held) : copied(held),
    ]),
  )
}

const withoutHeader = (match: unknown): unknown =>
  isObject(match) && isObject(match.header) ? { ...match, header: masked(match.header) } : match

const masked = (headers: unknown): unknown =>
  isObject(headers) ? Object.fromEntries(Object.keys(headers).map((name) => [name, '[redacted]'])) : headers
