import { isDeepStrictEqual } from 'node:util'
import { resolve } from 'node:path'
import { applyPatch, createTwoFilesPatch, parsePatch, type StructuredPatch } from 'diff'
import type { Env } from '../../../config/files/interpolate.ts'
import { readText } from '../../../config/files/read-text.ts'
import { configHash } from '../../../config/hash.ts'
import { policiesOf } from '../../../config/call-timeouts.ts'
import { formatIssue } from '../../../config/issues/issues.ts'
import { readConfig, remembered } from '../../../config/load.ts'
import type { Config } from '../../../config/schema/schema.ts'
import type { PairedReport } from '../../../experiments/paired.ts'
import { DEFAULT_SET } from '../../../mesh/settings.ts'
import { RecordingError } from '../../../sim/recording.ts'
import type { ReplayReport } from '../../../sim/replay-text.ts'
import { type Output, UnusableInput } from '../../shared/arguments.ts'
import { checkComparison, compareOn, type OwnComparison, type Preparing } from '../../compare/compare.ts'
import { replayUnder } from '../../compare/sim/replay.ts'
import type { Cycle } from './file.ts'

type Policies = Config['policies']
type Change = NonNullable<Cycle['change']>

/** A proposed change of policies with its evidence. */
export interface Proposed {
  readonly config: string
  readonly diff: string
  readonly effect: string
  readonly harm: string
  readonly replay: ReplayReport | Missing
  readonly comparison: PairedReport | Missing
}

/** Evidence that is missing, and why. */
export interface Missing {
  readonly missing: string
  /** True when gathering the evidence failed. */
  readonly isFailure?: true
}

/** The policies before and after the change. */
export interface Both {
  readonly file: string
  readonly config: Config
  readonly before: Policies
  readonly after: Policies
  /** The change as a diff that we made, so that the diff does what was checked, whichever program applies it. */
  readonly diff: string
}

/**
 * Applies the diff in memory. The file on disk stays as it is, because a person applies the change. Rejects with an
 * `UnusableInput` for a diff that does not fit, changes more than policies, or makes the config invalid.
 */
export async function readChange(file: string, { diff }: Change, env: Env): Promise<Both> {
  const read = await readText(file)
  if ('problem' in read) throw new UnusableInput(`${file} ${read.problem}`)
  const { text, path } = applied(file, read.text, diff)
  const config = await configOf(file, read.text, env, file)
  const changed = await configOf(file, text, env, `${file} with the diff`)
  const others = differingKeys({ ...config, policies: undefined }, { ...changed, policies: undefined })
  if (others.length > 0) throw new UnusableInput(`the diff changes more than policies: ${others.join(', ')}`)
  const [before, after] = [policiesOf(config), policiesOf(changed)]
  if (isDeepStrictEqual(before, after)) throw new UnusableInput('the diff does not change a policy')
  const own = createTwoFilesPatch(`a/${path}`, `b/${path}`, read.text, text)
  return { file, config, before, after, diff: own.slice(own.indexOf('--- ')) }
}

/** Checks what can be checked of the comparison before the run. Rejects with an `UnusableInput`. */
export async function checkEvidence(both: Both, { compare }: Change, env: Env): Promise<void> {
  const twins = twinsOf(both)
  if (compare === undefined || 'missing' in twins) return
  await checkComparison(comparisonWith(compare, twins, both), env)
}

/** Gathers the evidence: a replay of recorded traffic, and a comparison. A failure is a `Missing`. */
export async function withEvidence(both: Both, change: Change, parts: Preparing): Promise<Proposed> {
  const { effect, harm, compare } = change
  const twins = twinsOf(both)
  const recording = change.recording ?? both.config.telemetry.recording?.file
  const replay: ReplayReport | Missing =
    recording === undefined
      ? { missing: 'neither the script nor telemetry.recording.file of the config names a recording' }
      : await replayOf(recording, twins.set, both, parts.out).catch(failed)
  const comparison = await comparisonOf(compare, twins, both, parts).catch(failed)
  return { config: both.file, diff: both.diff, effect, harm, replay, comparison }
}

/** The report of the run must not get lost with its evidence. */
const failed = ({ message }: Error): Missing => ({ missing: message, isFailure: true })

/** Lines of a diff: programs differ in how they read other lines, such as renames. */
const DIFF_LINE = /^([ +-].*|@@ .*|\\ .*)?$/

/** Returns the text with the diff applied exactly, and the path in the diff. Throws an `UnusableInput`. */
function applied(file: string, text: string, diff: string): { readonly text: string; readonly path: string } {
  const lines = diff.split(/\r?\n/)
  const other = lines.find((line) => !DIFF_LINE.test(line))
  if (other !== undefined)
    throw new UnusableInput(`the diff has another line than a diff: ${other.slice(0, 80)}`)
  if (lines[0]?.startsWith('--- ') !== true || lines[1]?.startsWith('+++ ') !== true)
    throw new UnusableInput('the diff does not begin with the lines "--- a/FILE" and "+++ b/FILE"')
  let patches: StructuredPatch[]
  try {
    // Editors and models remove the space of an empty context line.
    patches = parsePatch(diff.replace(/^$/gm, ' '))
  } catch (error) {
    throw new UnusableInput(`the diff cannot be read: ${(error as Error).message}`)
  }
  const [patch, ...more] = patches.filter(({ hunks }) => hunks.length > 0)
  if (patch === undefined) throw new UnusableInput('the diff has no hunk (@@ … @@)')
  if (more.length > 0) throw new UnusableInput('the diff changes several files; expected one')
  const path = patch.oldFileName?.replace(/^a\//, '') ?? ''
  const isConfig = path !== '' && `/${resolve(file)}`.endsWith(`/${path}`)
  if (!isConfig || patch.newFileName?.replace(/^b\//, '') !== path)
    throw new UnusableInput(`the diff is for another file than ${file}`)
  const changed = applyPatch(text, patch, { fuzzFactor: 0 })
  if (changed === false)
    throw new UnusableInput(`the diff does not fit ${file}: its lines differ from those of the file`)
  return { text: changed, path }
}

async function configOf(file: string, text: string, env: Env, name: string): Promise<Config> {
  const loaded = remembered(await readConfig(file, env, { texts: new Map([[file, { text }]]) }))
  if (loaded.ok) return loaded.config
  throw new UnusableInput(`${name} is no valid config:\n${loaded.errors.map(formatIssue).join('\n')}`)
}

/** Two policy sets that differ as the change differs; `missing` when no policy set can have the change. */
type Twins = {
  /** The policy set that the change is in. */
  readonly set: string
} & ({ readonly policies: Policies; readonly sets: { control: string; treatment: string } } | Missing)

/** A set's settings win over `defaults` and `overrides`, so a set can have changed defaults unless overrides act on them. */
function twinsOf({ before, after }: Both): Twins {
  const defaults = differingKeys(before.defaults, after.defaults)
  const sets = differingKeys(before.sets, after.sets)
  const [name = DEFAULT_SET] = sets
  const one = defaults.length > 0 ? DEFAULT_SET : name
  if (!isDeepStrictEqual(before.overrides, after.overrides))
    return { set: one, missing: 'the change is in policies.overrides, which no policy set can have' }
  if (sets.length + Math.sign(defaults.length) > 1)
    return { set: one, missing: `the change is in several policy sets: ${sets.join(', ')}` }
  const overridden = defaults.filter((policy) => before.overrides.some((override) => policy in override))
  if (overridden.length > 0)
    return { set: one, missing: `policies.overrides also set ${overridden.join(', ')}` }
  const added = `${one}_changed`
  const changed =
    one === DEFAULT_SET
      ? Object.fromEntries(defaults.map((policy) => [policy, settingIn(after.defaults, policy) ?? false]))
      : after.sets[one]!
  return {
    set: one,
    policies: { ...before, sets: { ...before.sets, [added]: changed } },
    sets: { control: one in before.sets ? one : DEFAULT_SET, treatment: added },
  }
}

const settingIn = (settings: object, policy: string) => (settings as Record<string, unknown>)[policy]

async function replayOf(
  recording: string,
  set: string,
  { before, after }: Both,
  out: Output,
): Promise<ReplayReport | Missing> {
  const choice = (name: string, policies: Policies) =>
    Object.hasOwn(policies.sets, set) ? { name, policies, set } : { name, policies }
  const choices = [choice('now', before), choice('changed', after)]
  try {
    return await replayUnder({ file: recording, choices, hash: configHash(before), faults: [], seed: 1 }, out)
  } catch (error) {
    if (error instanceof RecordingError) return { missing: error.message }
    throw error
  }
}

async function comparisonOf(
  compare: Change['compare'],
  twins: Twins,
  both: Both,
  parts: Preparing,
): Promise<PairedReport | Missing> {
  if (compare === undefined) return { missing: 'the script has no "compare", so no comparison was run' }
  if ('missing' in twins) return { missing: twins.missing }
  return compareOn(comparisonWith(compare, twins, both), parts)
}

function comparisonWith(
  { workload, faults: plan, tasks, seed }: NonNullable<Change['compare']>,
  { policies, sets: both }: Exclude<Twins, Missing>,
  { file, config }: Both,
): OwnComparison {
  const origin = { name: file, config: { ...config, policies } }
  return { origin, both, workload, plan, tasks, seed }
}

/** Returns the keys whose values differ, in order of the names. */
function differingKeys(a: object, b: object): readonly string[] {
  const [from, to] = [a, b] as Record<string, unknown>[]
  return [...new Set([...Object.keys(a), ...Object.keys(b)])]
    .filter((key) => !isDeepStrictEqual(from![key], to![key]))
    .sort()
}
