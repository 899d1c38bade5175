import { realpath } from 'node:fs/promises'
import { dirname, isAbsolute, relative, resolve } from 'node:path'
import { formatPath, Origins } from '../config/files/places.ts'
import { explain } from '../config/issues/explain.ts'
import { formatIssue, sortIssues } from '../config/issues/issues.ts'
import type { GameDayPlan } from '../gamedays/plan.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { gameDayPlanSchema } from './gamedays.ts'
import { readExperiment, valuesIn, withWorkload } from './guarded/file.ts'

/**
 * A GameDay, both parsed and as the gateway takes it, or the problems of its files. Each problem is one line. `files`:
 * the paths of the experiments' files.
 */
export type ReadGameDay = { readonly files: readonly string[] } & (
  | { readonly ok: true; readonly plan: GameDayPlan; readonly written: unknown }
  | { readonly ok: false; readonly problems: readonly string[] }
)

/** Most files read; the schema allows fewer. */
const MAX_FILES = 64

/** Whether the value of a file looks like a GameDay, not like an experiment or a config. */
export const isGameDay = (value: unknown): boolean =>
  isObject(value) && Array.isArray(value.experiments) && isObject(value.roles)

/**
 * Reads a GameDay from a YAML or JSON file. `file` of an experiment names a file relative to the GameDay's file; its
 * content replaces the name. `load.workload` is read as in an experiment. `within`: the folder that has to contain the
 * files of the experiments; default: any folder.
 */
export async function readGameDay(
  file: string,
  { within }: { readonly within?: string } = {},
): Promise<ReadGameDay> {
  const origins = new Origins()
  const read = await valuesIn(file, origins, [])
  const filled = 'issues' in read ? read : await withWorkload(file, read.value, origins)
  if ('issues' in filled) return { ok: false, problems: filled.issues.map(formatIssue), files: [] }
  const value = isObject(filled.value) ? { ...filled.value } : filled.value
  const problems: string[] = []
  const files: string[] = []
  if (isObject(value) && Array.isArray(value.experiments)) {
    const steps: unknown[] = []
    for (const [index, step] of (value.experiments as unknown[]).slice(0, MAX_FILES).entries()) {
      if (isObject(step) && 'file' in step && 'spec' in step) {
        const at = ['experiments', index]
        const message = 'has both `file` and `spec`: leave one of them out'
        problems.push(
          formatIssue({ severity: 'error', path: formatPath(at), message, ...origins.locate(at, 'key') }),
        )
      }
      const path = fileOf(file, step)
      if (path !== undefined) files.push(path)
      if (path !== undefined && within !== undefined && !(await isInside(within, path)))
        problems.push(`${file}: the file of an experiment is outside of the folder: ${path}`)
      else steps.push(await withSpec(step, path, problems))
    }
    value.experiments = steps
  }
  if (problems.length > 0) return { ok: false, problems, files }
  const parsed = gameDayPlanSchema.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, plan: parsed.data, written: value, files }
  const issues = explain(parsed.error.issues, { schema: gameDayPlanSchema, value, origins })
  return { ok: false, problems: sortIssues(issues, [file]).map(formatIssue), files }
}

/** Returns the path of an experiment's file; undefined for an experiment without a file. */
const fileOf = (gameDay: string, step: unknown): string | undefined =>
  isObject(step) && typeof step.file === 'string' ? resolve(dirname(gameDay), step.file) : undefined

async function withSpec(step: unknown, path: string | undefined, problems: string[]): Promise<unknown> {
  if (!isObject(step) || path === undefined) return step
  const { file: _, ...rest } = step
  const read = await readExperiment(path)
  if (!read.ok) problems.push(...read.problems)
  return { ...rest, spec: read.written }
}

/** Whether a path is in a folder, both as written and by the targets of links. */
async function isInside(folder: string, path: string): Promise<boolean> {
  const isBelow = (from: string, to: string) => {
    const way = relative(from, to)
    return way !== '' && !isAbsolute(way) && way.split(/[/\\]/)[0] !== '..'
  }
  if (!isBelow(resolve(folder), path)) return false
  // Reading tells later of a file that does not exist.
  const target = await realpath(path).catch(() => undefined)
  return target === undefined || isBelow(await realpath(folder), target)
}
