import type { Fault } from '../../../chaos/plan/common.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { configHash } from '../../../config/hash.ts'
import { systemClock } from '../../../mesh/clock.ts'
import type { PolicyChoice } from '../../../sim/policy-choices.ts'
import { notesOnReplay, readRecording, type Recording, RecordingError } from '../../../sim/recording.ts'
import { type Column, compareColumns, tasksIn } from '../../../sim/replay-figures.ts'
import { limits, replayMarkdown, type ReplayReport } from '../../../sim/replay-text.ts'
import { mean } from '../../../sim/statistics.ts'
import { type Play, playOf, replay } from '../../../sim/replay.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../../shared/arguments.ts'
import { configNames, findConfig } from '../../run/find-config.ts'
import { showProgress } from '../../shared/progress.ts'
import { idleIn, planOf, policiesAt, setOf } from './inputs.ts'

const options = {
  recording: { kind: 'text', value: 'FILE', about: "a gateway's recording: telemetry.recording.file" },
  policies: { kind: 'text', value: 'FILE', about: 'the policies to play under: a block "policies"' },
  config: {
    kind: 'text',
    value: 'FILE',
    about: `the policies of a whole config (default: the first of ${configNames.join(', ')})`,
  },
  set: {
    kind: 'text',
    value: 'NAME',
    about: 'also plays under this policy set of the file, compared with the unnamed policies',
  },
  plan: { kind: 'text', value: 'FILE', about: 'adds faults: a plan, or a block "chaos"' },
  seed: { kind: 'integer', value: 'SEED', default: '1', about: 'the same seed gives the same report' },
  json: { kind: 'flag', about: 'the report as JSON' },
} as const

const usage = `breakwater sim --recording FILE [--policies FILE | --config FILE] [--set NAME]

  Replays recorded calls under other policies, on a virtual clock, and reports the outcomes. Recorded attempts take as
  long and end as recorded; other attempts are drawn from recorded attempts near in time.

${optionLines(options)}

  Exit codes: 0; 1 when the recording cannot be played; 2 for wrong arguments.`

const PLAYS = 5

export function sim(args: readonly string[], out: Output, env: Env): Promise<number> {
  const line = { usage, options, positionals: [] }
  return runCommand(args, line, out, async (values) => {
    const given = await asked(values, out)
    try {
      const report = await reportOn(given, out, env)
      out.stdout(values.json ? JSON.stringify(report, undefined, 2) : replayMarkdown(report))
      return 0
    } catch (error) {
      if (!(error instanceof RecordingError)) throw error
      throw new UnusableInput(error.message)
    }
  })
}

type Asked = Values<typeof options> & { readonly recording: string }

/**
 * Returns the checked options. Without an option for policies, the config of the current folder applies. Rejects with
 * `Misuse`, or with an `UnusableInput`.
 */
async function asked(values: Values<typeof options>, out: Output): Promise<Asked> {
  const { recording, policies, config } = values
  if (recording === undefined) throw new Misuse('--recording FILE is missing')
  if (policies !== undefined || config !== undefined) return { ...values, recording }
  const found = await findConfig(process.cwd())
  if (found === undefined)
    throw new UnusableInput(
      `there are no policies to play under: expected --policies FILE, --config FILE, or a config in this folder (${configNames.join(', ')})`,
    )
  out.stderr(`breakwater: the config is ${found}`)
  return { ...values, recording, config: found }
}

async function reportOn(given: Asked, out: Output, env: Env): Promise<ReplayReport> {
  const faults = given.plan === undefined ? [] : await planOf(given.plan, env)
  const { recording, plan, seed } = given
  return replayUnder({ ...(await choicesOf(given, env)), file: recording, plan, faults, seed }, out)
}

export interface Replayed {
  /** The recording. */
  readonly file: string
  readonly choices: readonly PolicyChoice[]
  /** Hash of the policies of the first choice. */
  readonly hash: string
  /** The plan's file, and its faults. */
  readonly plan?: string | undefined
  readonly faults: readonly Fault[]
  readonly seed: number
}

/** Replays a recording under each choice of policies. Rejects with a `RecordingError`, or with an `UnusableInput`. */
export async function replayUnder(
  { file, choices, hash, plan, faults, seed }: Replayed,
  out: Output,
): Promise<ReplayReport> {
  const recording = await readRecording(file)
  const { header, calls, notes } = recording
  const columns = await playAll(recording, choices, { faults, seed, out })
  const idle = idleIn(
    plan ?? '',
    faults,
    columns.flatMap(({ plays }) => plays.map((play) => play.idle)),
  )
  const drawn = columns.map(({ name, plays }) => [name, mean(plays.map((play) => play.drawn))])
  const isOther = hash !== header.policiesHash
  const other = `the policies during the recording differed from ${choices[0]!.name}`
  return {
    file,
    startedAt: header.startedAt,
    ranMs: calls.reduce((end, { at, tookMs }) => Math.max(end, at + tookMs), 0) - calls[0]!.at,
    calls: calls.length,
    tasks: tasksIn(calls),
    plays: PLAYS,
    seed,
    drawn: Object.fromEntries(drawn) as ReplayReport['drawn'],
    notes: [...notes, ...notesOnReplay(calls), ...(isOther ? [other] : []), ...idle],
    limits,
    ...compareColumns(calls, playOf(recording), columns),
  }
}

/** The policies to play under, and the hash of the unnamed policies. Rejects with an `UnusableInput`. */
async function choicesOf(
  given: Asked,
  env: Env,
): Promise<{ readonly choices: readonly PolicyChoice[]; readonly hash: string }> {
  const policies = await policiesAt(given, env)
  const file = given.policies ?? given.config ?? ''
  const named = setOf(policies, given.set, file)
  const choices = [{ name: file, policies }, ...(named.set === undefined ? [] : [named])]
  return { choices, hash: configHash(policies) }
}

interface PlayParts {
  readonly faults: readonly Fault[]
  readonly seed: number
  readonly out: Output
}

async function playAll(
  recording: Recording,
  choices: readonly PolicyChoice[],
  { faults, seed, out }: PlayParts,
): Promise<Column[]> {
  const all = recording.calls.length * choices.length * PLAYS
  let over = 0
  const onCall = () => void over++
  const endProgress = showProgress(out, systemClock, () => `played ${over} of ${all} calls`)
  try {
    const columns: Column[] = []
    for (const choice of choices) {
      const plays: Play[] = []
      for (let play = 0; play < PLAYS; play++)
        plays.push(await replay(recording, { choice, seed: seed + play, faults, onCall }))
      columns.push({ name: choice.name, plays })
    }
    return columns
  } finally {
    endProgress()
  }
}
