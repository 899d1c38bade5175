import { ForeignPlanError, fromChaosMonkey, fromMcpChaos, planFormat } from '../../chaos/plan/compat/index.ts'
import { chaos, type ChaosConfig } from '../../chaos/plan/schema.ts'
import { parseSource } from '../../config/files/document.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { Origins } from '../../config/files/origins.ts'
import { ownBlock } from '../../config/files/own-block.ts'
import { readText } from '../../config/files/read-text.ts'
import { type Reading, readValues } from '../../config/files/read-values.ts'
import { explain } from '../../config/issues/explain.ts'
import { type ConfigIssue, formatIssue } from '../../config/issues/issues.ts'
import { coerce } from '../../config/schema/coerce.ts'
import { isPlainMap } from '../../config/schema/plain-map.ts'

/** A plan that can be used, or what keeps it from being used, a line each. */
type ReadPlan =
  | { readonly ok: true; readonly chaos: ChaosConfig }
  | { readonly ok: false; readonly problems: readonly string[] }

/** How long faults may stay armed around one server, and those of other formats do: whoever wraps one also ends it. */
const LONGEST = '24h'

/**
 * Reads a plan from a file: ours (a list of faults, `{ seed, faults }`, a block `chaos`, or a file with such a block),
 * or one of the two other formats, whose faults may hit tools that write. It is armed as soon as it is applied.
 */
export async function readPlan(file: string, env: Env, strict: boolean): Promise<ReadPlan> {
  const read = await readText(file)
  if ('problem' in read) return failed([`${file} ${read.problem}`])
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  if (issues.length > 0) return failed(issues.map(formatIssue))
  const { node, strangers } = ownBlock('chaos', source)
  for (const { name, node: key } of strangers) {
    const message = 'only "chaos" is read from a plan'
    issues.push({ severity: 'error', file, path: name, ...source.positionOf(key), message })
  }
  const reading: Reading = { env, origins: new Origins(), issues, interpolated: new Set() }
  const written = node === null ? {} : readValues(file, source, node, [], reading)
  if (issues.length > 0) return failed(issues.map(formatIssue))
  return checked(file, written, reading.origins, strict)
}

function checked(file: string, written: unknown, origins: Origins, strict: boolean): ReadPlan {
  let plan: unknown
  try {
    plan = inOurWords(written)
  } catch (error) {
    if (!(error instanceof ForeignPlanError)) throw error
    const place = formatIssue({ severity: 'error', path: '', message: '', ...origins.locate(error.path) })
    return failed([`${place}  ${error.message}`])
  }
  const value = coerce(armed(plan, strict), chaos, origins)
  // Without texts of its own zod leaves those of the schemas, and `explain` finds the rest.
  const parsed = chaos.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, chaos: parsed.data }
  const problems = explain(parsed.error.issues, { schema: chaos, value, origins })
  return failed(problems.map((issue) => formatIssue(issue.file === '' ? { ...issue, file } : issue)))
}

/** A plan as the block `chaos` says it. */
function inOurWords(written: unknown): unknown {
  const options = { ttl: LONGEST, allowWrites: true }
  switch (planFormat(written)) {
    case 'mcp-chaos':
      return fromMcpChaos(written, options)
    case 'chaos-monkey':
      return { faults: fromChaosMonkey(written, options) }
    case 'own':
      return Array.isArray(written) ? { faults: written } : written
  }
}

/** Wrapping a server is asking for its faults, so nothing else has to switch them on. */
function armed(plan: unknown, strict: boolean): unknown {
  if (!isPlainMap(plan)) return plan
  return { maxTtl: LONGEST, ...plan, enabled: true, persist: true, ...(strict && { strict }) }
}

const failed = (problems: readonly string[]): ReadPlan => ({ ok: false, problems })
