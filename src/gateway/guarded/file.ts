import { stat } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parseSource } from '../../config/files/document.ts'
import { Origins } from '../../config/files/places.ts'
import { readText } from '../../config/files/read-text.ts'
import { type Reading, readValues } from '../../config/files/read-values.ts'
import { explain } from '../../config/issues/explain.ts'
import { type ConfigIssue, formatIssue, sortIssues } from '../../config/issues/issues.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import { experimentSpec } from './spec.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { shippedAt } from '../../load/workload.ts'

/**
 * An experiment, both parsed and as written, or the problems of its file. Each problem is one line. `written` is
 * undefined for a file that could not be parsed.
 */
export type ReadExperiment =
  | { readonly ok: true; readonly spec: Spec; readonly written: unknown }
  | { readonly ok: false; readonly problems: readonly string[]; readonly written?: unknown }

/** A file's value, or the issues with its text. `valuesIn` records the place of each value in `origins`. */
export type ReadValues = { readonly value: unknown } | { readonly issues: readonly ConfigIssue[] }

/** Reads a YAML or JSON file, without filling in variables. */
export async function valuesIn(
  file: string,
  origins: Origins,
  at: readonly (string | number)[],
): Promise<ReadValues> {
  const isOther = await stat(file).then(
    (stats) => !stats.isFile() && !stats.isDirectory(),
    // `readText` below reports why the file cannot be read.
    () => false,
  )
  const read = isOther ? { problem: 'it is no regular file' } : await readText(file)
  if ('problem' in read) return { issues: [{ severity: 'error', file, path: '', message: read.problem }] }
  const source = parseSource(file, read.text)
  const issues: ConfigIssue[] = source.problems.map(({ position, message }) => {
    return { severity: 'error', file, path: '', ...position, message }
  })
  // References in workloads look like environment variables, so variables are not filled in.
  const reading: Reading = { env: {}, origins, issues, interpolated: new Set(), verbatim: true }
  const value = issues.length > 0 ? undefined : readValues(file, source, source.root, at, reading)
  return issues.length > 0 ? { issues } : { value }
}

/**
 * Reads an experiment from a YAML or JSON file. `load.workload` may name a file relative to the experiment's file, or a
 * workload of the package; its content replaces the name.
 */
export async function readExperiment(file: string): Promise<ReadExperiment> {
  const origins = new Origins()
  const read = await valuesIn(file, origins, [])
  if ('issues' in read) return { ok: false, problems: read.issues.map(formatIssue) }
  const filled = await withWorkload(file, read.value, origins)
  if ('issues' in filled) return { ok: false, problems: filled.issues.map(formatIssue) }
  const { value } = filled
  const parsed = experimentSpec.safeParse(value, { error: () => '' })
  if (parsed.success) return { ok: true, spec: parsed.data, written: value }
  const issues = explain(parsed.error.issues, { schema: experimentSpec, value, origins })
  return { ok: false, problems: sortIssues(issues, [file]).map(formatIssue), written: value }
}

/** Returns a value whose `load.workload`, if a name, is replaced by the content of the named file. */
export async function withWorkload(file: string, value: unknown, origins: Origins): Promise<ReadValues> {
  const load = isObject(value) ? value.load : undefined
  if (!isObject(value) || !isObject(load) || typeof load.workload !== 'string') return { value }
  const named = load.workload
  const path = /[/\\]/.test(named) ? resolve(dirname(file), named) : shippedAt(`${named}.yaml`)
  const read = await valuesIn(path, origins, ['load', 'workload'])
  if ('issues' in read) return read
  return { value: { ...value, load: { ...load, workload: read.value } } }
}
