import type { z } from 'zod'
import { suggest } from '../../../units/suggest.ts'

/** A fault as a plan of ours would say it: plain data, to be read by the schema of plans. */
export interface FaultConfig extends Readonly<Record<string, unknown>> {
  readonly name: string
  readonly type: string
  /** In [0, 1]. */
  readonly rate: number
}

/** Settings that a fault needs and the other formats do not give. */
export interface ForeignOptions {
  /** `ttl` of each fault that names no duration of its own; as in a plan. */
  readonly ttl: string | number
  /** Whether faults may hit tools that are not known to be read-only; false unless given. */
  readonly allowWrites?: boolean
  /** The meaning here of the targets of another format: SERVER or SERVER/TOOL, as globs, by their foreign names. */
  readonly aliases?: Readonly<Record<string, string>>
  /** The servers that there are; unless they are given, targets are not checked. */
  readonly servers?: readonly string[]
  /** The target in place of a plan's unknown server, when the plan names exactly one; unless given, no server is replaced. */
  readonly soleTarget?: string
}

/** Where in a plan. */
export type PlanPath = readonly (string | number)[]

/** Something in a plan of another format that cannot be read; the message says where it stands. */
export class ForeignPlanError extends Error {
  readonly path: PlanPath
  /** The message without the path, for findings that have one beside it. */
  readonly problem: string

  constructor(path: PlanPath, problem: string) {
    super(path.length === 0 ? problem : `${written(path)}: ${problem}`)
    this.path = path
    this.problem = problem
  }
}

/**
 * Returns the fields of all faults of the other formats. Neither format knows a limit of calls at a time: the limit is the
 * largest.
 */
export function commonOf({ ttl, allowWrites }: ForeignOptions) {
  return { ttl, maxConcurrent: 10_000, ...(allowWrites === true ? { allowWrites } : {}) }
}

/** The type that an entry names, which has to be one of those that there are schemas for. */
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

/** Reads fields by their schema; `what` has them, in the message about one that it does not have. */
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
