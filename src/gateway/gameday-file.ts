import { dirname, resolve } from 'node:path'
import { Origins } from '../config/files/places.ts'
import { explain } from '../config/issues/explain.ts'
import { formatIssue, sortIssues } from '../config/issues/issues.ts'
import type { GameDayPlan } from '../gamedays/plan.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { gameDayPlanSchema } from './gamedays.ts'
import { readExperiment, valuesIn, withWorkload } from './guarded/file.ts'

/** A GameDay, both parsed and as the gateway takes it, or the problems of its files. Each problem is one line. */
export type ReadGameDay =
  | { readonly ok: true; readonly plan: GameDayPlan; readonly written: unknown }
  | { readonly ok: false; readonly problems: readonly string[] }

/** Most files read; the schema allows fewer. */
const MAX_FILES = 64

/**
 * Reads a GameDay from a YAML or JSON file. `file` of an experiment names a file relative to the GameDay's file; its
 * content replaces the name. `load.workload` is read as in an experiment.
 */
export async function readGameDay(file: string): Promise<ReadGameDay> {
  const origins = new Origins()
  const read = await valuesIn(file, origins, [])
  const filled = 'issues' in read ? read : await withWorkload(file, read.value, origins)
  if ('issues' in filled) return { ok: false, problems: filled.issues.map(formatIssue) }
  const value = isObject(filled.value) ? { ...filled.value } : filled.value
  const problems: string[] = []
  if (isObject(value) && Array.isArray(value.experiments)) {
    const steps: unknown[] = []
    for (const step of (value.experiments as unknown[]).slice(0, MAX_FILES))
      steps.push(await withSpec(file, step, problems))
    value.experiments = steps
  }
  if (problems.length > 0) return { ok: false, problems }
  const parsed = gameDayPlanSchema.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, plan: parsed.data, written: value }
  const issues = explain(parsed.error.issues, { schema: gameDayPlanSchema, value, origins })
  return { ok: false, problems: sortIssues(issues, [file]).map(formatIssue) }
}

async function withSpec(gameDay: string, step: unknown, problems: string[]): Promise<unknown> {
  if (!isObject(step) || typeof step.file !== 'string') return step
  const { file, ...rest } = step
  const read = await readExperiment(resolve(dirname(gameDay), file))
  if (!read.ok) problems.push(...read.problems)
  return { ...rest, spec: read.written }
}
