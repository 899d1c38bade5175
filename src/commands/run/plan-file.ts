import {
  aliasesIn,
  ForeignPlanError,
  fromChaosMonkey,
  fromMcpChaos,
  planFormat,
} from '../../chaos/plan/compat/index.ts'
import { chaos, type ChaosConfig } from '../../chaos/plan/schema.ts'
import { parseSource } from '../../config/files/document.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { Origins, formatPath } from '../../config/files/places.ts'
import { ownBlock } from '../../config/files/client-settings.ts'
import { readText } from '../../config/files/read-text.ts'
import { type Reading, readValues } from '../../config/files/read-values.ts'
import { explain } from '../../config/issues/explain.ts'
import { type ConfigIssue, formatIssue } from '../../config/issues/issues.ts'
import { coerce } from '../../config/schema/schema-walk.ts'
import { isPlainMap } from '../../config/schema/server-names.ts'
import { withoutInterpolated } from '../../config/secrets/redact-text.ts'

/** Name of the wrapped server in plans and URL paths. */
export const WRAPPED = 'wrapped'

/** A usable plan, or its problems. Each problem is one line. */
type ReadPlan =
  | {
      readonly ok: true
      readonly chaos: ChaosConfig
      /** The block `chaos` before validation, to send it to another gateway. */
      readonly written: Readonly<Record<string, unknown>>
    }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Settings for plans in other formats, which do not contain these settings. */
export interface ForeignOptions {
  readonly ttl: string
  readonly servers?: readonly string[]
  /** If a plan has only one target, and its name is unknown, the target is this server. */
  readonly soleTarget?: string
}

/**
 * Longest lifetime of faults at a wrapped server, and their default lifetime in other formats. The faults end with the
 * wrapped server anyway.
 */
const LONGEST = '24h'

/**
 * Reads a plan from a file. Our own format is a list of faults, `{ seed, faults }`, a block `chaos`, or a file with
 * such a block. Faults of the two other formats may hit tools with writes. The plan is armed when applied. `foreign`
 * has the settings that other formats lack; by default they are for a single wrapped server.
 */
export async function readPlan(
  file: string,
  env: Env,
  strict: boolean,
  foreign: ForeignOptions = here,
): Promise<ReadPlan> {
  const read = await readText(file)
  if ('problem' in read) return unusable([`${file} ${read.problem}`])
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  if (issues.length > 0) return unusable(issues.map(formatIssue))
  const { node, unknownKeys } = ownBlock('chaos', source)
  for (const { name, node: key } of unknownKeys) {
    const message = 'only "chaos" is read from a plan'
    issues.push({ severity: 'error', file, path: formatPath([name]), ...source.positionOf(key), message })
  }
  const reading: Reading = { env, origins: new Origins(), issues, interpolated: new Set() }
  const written = node === null ? {} : readValues(file, source, node, [], reading)
  if (issues.length > 0) return unusable(issues.map(formatIssue))
  const plan = checked(file, written, reading.origins, { strict, foreign })
  if (plan.ok) return plan
  return unusable(plan.problems.map((problem) => withoutInterpolated(problem, reading.interpolated)))
}

function checked(
  file: string,
  written: unknown,
  origins: Origins,
  { strict, foreign }: { readonly strict: boolean; readonly foreign: ForeignOptions },
): ReadPlan {
  let plan: unknown
  try {
    plan = inOurWords(written, foreign)
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    const issue = {
      severity: 'error',
      path: '',
      message: error.message,
      ...origins.locate(error.path),
    } as const
    return unusable([formatIssue(issue.file === '' ? { ...issue, file } : issue)])
  }
  const value = coerce(armed(plan, strict), chaos, origins)
  // The empty text makes zod keep the error texts of the schemas; `explain` writes all other texts.
  const parsed = chaos.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, chaos: parsed.data, written: isPlainMap(value) ? value : {} }
  const problems = explain(parsed.error.issues, { schema: chaos, value, origins })
  return unusable(problems.map((issue) => formatIssue(issue.file === '' ? { ...issue, file } : issue)))
}

/**
 * The settings for a single wrapped server: if a plan of another format has one target, the target is this server,
 * whatever its name.
 */
const here: ForeignOptions = { ttl: LONGEST, servers: [WRAPPED], soleTarget: WRAPPED }

function inOurWords(written: unknown, { ttl, ...aim }: ForeignOptions): unknown {
  const options = { ttl, allowWrites: true }
  switch (planFormat(written)) {
    case 'mcp-chaos':
      return fromMcpChaos(written, options)
    case 'chaos-monkey': {
      if (!isPlainMap(written)) return { faults: fromChaosMonkey(written, { ...options, ...aim }) }
      const { aliases, seed, ...scenario } = written
      const faults = fromChaosMonkey(scenario, { ...options, ...aim, aliases: aliasesIn(aliases) })
      return { ...(aliases !== undefined && { aliases }), ...(seed !== undefined && { seed }), faults }
    }
    case 'own':
      return Array.isArray(written) ? { faults: written } : written
  }
}

/** Returns the plan with faults enabled: a user who wraps a server with a plan wants the faults. */
function armed(plan: unknown, strict: boolean): unknown {
  if (!isPlainMap(plan)) return plan
  return { maxTtl: LONGEST, ...plan, enabled: true, persist: true, ...(strict && { strict }) }
}

const unusable = (problems: readonly string[]): ReadPlan => ({ ok: false, problems })
