import { parse } from 'yaml'
import { chaos } from '../../chaos/plan/schema.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { readText } from '../../config/files/read-text.ts'
import { formatIssue } from '../../config/issues/issues.ts'
import { loadConfig } from '../../config/load.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { readPlan, type Plan } from '../../routes/chaos/plan.ts'

export type PlanFile =
  { readonly ok: true; readonly plan: Plan } | { readonly ok: false; readonly problems: readonly string[] }

/** Blocks of a whole config. */
const blocks = ['chaos', 'gateway', 'mcpServers', 'servers', 'policies']

/** Reads a plan: a file of its own in any of the three formats, a block `chaos`, or a whole config. Never rejects. */
export async function readPlanFile(path: string, env: Env): Promise<PlanFile> {
  const read = await readText(path)
  if ('problem' in read) return failed([`${path} ${read.problem}`])
  let value: unknown
  try {
    value = parse(read.text)
  } catch (error) {
    return failed([`${path}: ${(error as Error).message}`])
  }
  if (isObject(value) && blocks.some((block) => isObject(value) && block in value)) {
    const loaded = await loadConfig(path, env)
    return loaded.ok ? { ok: true, plan: loaded.config.chaos } : failed(loaded.errors.map(formatIssue))
  }
  const defaults = chaos.parse({})
  const { maxTtl } = chaos.safeParse({ maxTtl: isObject(value) ? value.maxTtl : undefined }).data ?? defaults
  const plan = readPlan(planIn(value), { ...defaults, maxTtl })
  if (plan.ok) return { ok: true, plan: plan.value }
  return failed(
    plan.findings.map((finding) => [path, finding.path, finding.message].filter(Boolean).join('  ')),
  )
}

/** What a block `chaos` says beside its plan decides nothing. */
function planIn(value: unknown): unknown {
  if (!isObject(value)) return value
  const besides = Object.keys(chaos.unwrap().shape).filter((key) => !['seed', 'mode', 'faults'].includes(key))
  return Object.fromEntries(Object.entries(value).filter(([key]) => !besides.includes(key)))
}

const failed = (problems: readonly string[]): PlanFile => ({ ok: false, problems })
