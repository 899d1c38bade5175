import { resolve } from 'node:path'
import { withOwnPlan } from './files/foreign-plan.ts'
import type { Env } from './files/interpolate.ts'
import type { Origins } from './files/origins.ts'
import { formatPath, type Path } from './files/path.ts'
import { rememberInterpolated } from './files/provenance.ts'
import { readSources } from './files/sources.ts'
import { configHash } from './hash.ts'
import { doubts } from './issues/doubts.ts'
import { editorKeysIn } from './issues/editor-keys.ts'
import { explain } from './issues/explain.ts'
import type { Finding } from './issues/finding.ts'
import { type ConfigIssue, sortIssues } from './issues/issues.ts'
import { brokenRules } from './issues/rules.ts'
import { coerce } from './schema/coerce.ts'
import { type Config, config as schema } from './schema/schema.ts'

/** A config that can be used, or all that keeps it from being used. */
export type Loaded =
  | {
      readonly ok: true
      readonly config: Config
      readonly warnings: readonly ConfigIssue[]
      /** Absolute paths of all files that were read, to be watched. */
      readonly files: readonly string[]
      /** Of the effective config; see `configHash`. */
      readonly hash: string
    }
  | {
      readonly ok: false
      readonly errors: readonly ConfigIssue[]
      /** Absolute paths of all files that were read or should have been, to be watched. */
      readonly files: readonly string[]
    }

/** Reads the config at `path`, with its variables from `env`. Never rejects: what is wrong comes back as errors. */
export async function loadConfig(path: string, env: Env): Promise<Loaded> {
  const { value, files, origins, issues, interpolated } = await readSources(path, env)
  const watched = [...new Set(files.map((file) => resolve(file)))]
  const failed = (errors: readonly ConfigIssue[]): Loaded => ({
    ok: false,
    errors: sortIssues(errors, files),
    files: watched,
  })
  if (value === undefined) return failed(issues)

  const { value: own, problem } = withOwnPlan(value)
  if (problem !== undefined) return failed([report('error', { ...problem, at: 'value' }, origins)])
  const typed = coerce(own, schema, origins)
  // Without texts of its own zod leaves those of the schemas, and `explain` finds the rest.
  const parsed = schema.safeParse(typed, { error: () => '' })
  if (!parsed.success) {
    const problems = explain(parsed.error.issues, { schema, value: typed, origins })
    // Where a value could not be read, what it failed to be says nothing.
    return failed([
      ...issues,
      ...problems.filter(({ path }) => !issues.some((issue) => within(path, issue.path))),
    ])
  }
  if (issues.length > 0) return failed(issues)

  const config = parsed.data
  const broken = brokenRules(config)
  if (broken.length > 0) return failed(broken.map((finding) => report('error', finding, origins)))
  rememberInterpolated(config, interpolated)
  const warnings = [...editorKeysIn(typed), ...doubts(config)].map((finding) =>
    report('warning', finding, origins),
  )
  return { ok: true, config, warnings: sortIssues(warnings, files), files: watched, hash: configHash(config) }
}

const within = (path: string, outer: string) =>
  path === outer || path.startsWith(`${outer}.`) || path.startsWith(`${outer}[`)

function report(
  severity: ConfigIssue['severity'],
  { path, at, message }: Finding,
  origins: Origins,
): ConfigIssue {
  const written = asWritten(path, origins)
  return { severity, path: formatPath(written), message, ...origins.locate(written, at) }
}

/** The path in the words of its author, who may have called `mcpServers` `servers`. */
function asWritten(path: Path, origins: Origins): Path {
  const [block, ...rest] = path
  const renamed =
    block === 'mcpServers' && origins.get([block]) === undefined && origins.get(['servers']) !== undefined
  return renamed ? ['servers', ...rest] : path
}
