import type { z } from 'zod'
import { suggest } from '../../../units/suggest.ts'

/** A fault in our plan format: plain data, to be read by the schema of plans. */
export interface FaultConfig extends Readonly<Record<string, unknown>> {
  readonly name: string
  readonly type: string
  /** In [0, 1]. */
  readonly rate: number
}

/** Settings that our faults need and foreign plans lack. */
export interface ForeignOptions {
  /** `ttl` of each fault without a duration of its own; as in a plan. */
  readonly ttl: string | number
  /** True when faults may hit tools not known to be read-only; default false. */
  readonly allowWrites?: boolean
  /** Our targets (SERVER or SERVER/TOOL, as globs) in place of foreign targets, by the names of the foreign targets. */
  readonly aliases?: Readonly<Record<string, string>>
  /** The existing servers; if absent, targets are not checked. */
  readonly servers?: readonly string[]
  /**
   * The target in place of a plan's unknown server, when the plan names exactly one; if absent, no server is replaced.
   */
  readonly soleTarget?: string
}

/** A place in a plan. */
export type PlanPath = readonly (string | number)[]

/** An unreadable part of a foreign plan; the message names the place. */
export class ForeignPlanError extends Error {
  readonly path: PlanPath
  /** The message without the path, for findings with a separate path. */
  readonly problem: string

  constructor(path: PlanPath, problem: string) {
    super(path.length === 0 ? problem : `${written(path)}: ${problem}`)
    this.path = path
    this.problem = problem
  }
}

/**
 * Returns the common fields of all foreign faults. Foreign formats do not limit concurrent calls, so `maxConcurrent`
 * gets its largest value.
 */
export function commonOf({ ttl, allowWrites }: ForeignOptions) {
  return { ttl, maxConcurrent: 10_000, ...(allowWrites === true ? { allowWrites } : {}) }
}

/** Returns the type of an entry; the type must have a schema. */
export function schemaOf<Type extends string>(
  schemas: Readonly<Record<Type, unknown>>,
  type: unknown,
  path: PlanPath,
): Type {
  const names = Object.keys(schemas)
  if (typeof type === 'string' && names.includes(type)) return type as Type
  const at = [...path, 'type']
  if (typeof type !== 'string')
    throw new ForeignPlanError(at, `expected the type of a fault; there are ${names.join(', ')}`)
  throw new ForeignPlanError(
    at,
    `unknown type "${type.slice(0, 64)}"; ${meant(type, names)}there are ${names.join(', ')}`,
  )
}

/** Reads fields by their schema. `what`: names their owner in the message about an unknown field. */
export function read<Schema extends z.ZodObject>(
  schema: Schema,
  value: unknown,
  path: PlanPath,
  what: string,
): z.output<Schema> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const issue = result.error.issues[0]!
  const at = [...path, ...(issue.path as PlanPath)]
  if (issue.code !== 'unrecognized_keys') throw new ForeignPlanError(at, issue.message)
  const allowed = Object.keys(schema.shape)
  const [key = ''] = issue.keys
  const hint = `${meant(key, allowed)}allowed are ${allowed.join(', ')}`
  throw new ForeignPlanError(at, `unknown field "${key.slice(0, 64)}" of ${what}; ${hint}`)
}

function meant(word: string, names: readonly string[]): string {
  const name = suggest(word, names)
  return name === undefined ? '' : `did you mean ${name}? `
}

function written(path: PlanPath): string {
  return path
    .map((step, at) => (typeof step === 'number' ? `[${step}]` : at === 0 ? step : `.${step}`))
    .join('')
}
