import { lengthOf } from '../../../experiments/guarded/spec.ts'
import { type Verdict, verdicts } from '../../../evidence/verdict-names.ts'
import {
  type GameDayRecord,
  type GameDayResult,
  isGameDayOver,
  type StepRecord,
} from '../../../gamedays/record.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { type Paint, plain, type Tone } from '../../../telemetry/colours.ts'
import { printable } from '../../../telemetry/printable.ts'
import { timeOf } from '../../../telemetry/terminal-log.ts'
import { roundedDuration } from '../../../units/duration.ts'
import { commandFor, type Given } from '../../shared/control-command.ts'
import { type Cell, table } from '../../shared/table.ts'
import { armWords, doneWords, placeOf, type ShownRun } from '../experiment/guarded.ts'

/** A GameDay, in the format of `/admin/gamedays/{id}`. */
export interface ShownGameDay extends GameDayRecord {
  readonly result: GameDayResult
  /** The run of the experiment under way. */
  readonly run?: ShownRun
}

export interface ViewOptions {
  /** Options of the command, so that named commands reach the same gateway. */
  readonly given: Pick<Given, 'values'>
  /** Wall clock, in milliseconds since the Unix epoch. */
  readonly now: number
  /** Characters per line, and most lines; `Infinity`: no limit. */
  readonly width: number
  readonly height: number
  readonly paint?: Paint
}

/** Observations in the view, the latest. */
const LATEST = 2

const tones: Readonly<Record<Verdict, Tone>> = {
  passed: 'good',
  'held (weak)': 'doubtful',
  failed: 'bad',
  'no evidence': 'doubtful',
}

/** Returns the lines of a GameDay: its state, a line for each experiment, the current run, and what a person can do. */
export function viewLines(day: ShownGameDay, options: ViewOptions): string[] {
  const { run, observations } = day
  const { now, width, height } = options
  const below = [
    ...(run?.state === 'running' ? [runLine(run)] : []),
    ...observations.slice(-LATEST).map(({ at, by, text }) => `${timeOf(at)} ${by}: ${text}`),
    ...hints(day, options),
  ]
  // The table makes its own cells printable.
  const [head = '', ...rows] = experimentTable(day, width, options.paint)
  const current = day.steps.findIndex(({ state }) => state !== 'done' && state !== 'skipped')
  const most = Math.max(1, height - below.length - 2)
  return [shown(headline(day, now)), head, ...windowOf(rows, current, most), ...below.map(shown)]
}

/** Returns the progress of the current run; the table has its name and its stage. */
const runLine = (run: ShownRun): string =>
  [doneWords(run), ...(run.phase === 'recovery' ? [run.reason] : armWords(run))].join('  ')

const shown = (line: string): string => printable(line)

/** Returns at most `most` rows around the current row, the last of which counts the omitted rows. */
function windowOf(rows: readonly string[], current: number, most: number): readonly string[] {
  if (rows.length <= most) return rows
  const count = Math.max(1, most - 1)
  const middle = current < 0 ? rows.length : current
  const from = Math.max(0, Math.min(rows.length - count, middle - Math.floor(count / 2)))
  const part = rows.slice(from, from + count)
  return most < 2 ? part : [...part, `… and ${rows.length - count} more`]
}

/** Returns the state in a line, such as `payments: running for 2:10, about 3:15 left`. */
export function headline(day: ShownGameDay, now: number): string {
  const { plan, state, reason, startedAt, endedAt, steps } = day
  if (state !== 'running')
    return `${plan.name}: ${state}${endedAt === undefined ? '' : ` after ${clockTime(endedAt - startedAt)}`}; ${reason}`
  const leftMs = steps.reduce((sum, step) => sum + (leftOf(day, step) ?? 0), 0)
  return `${plan.name}: running for ${clockTime(now - startedAt)}, about ${clockTime(leftMs)} left, plus recoveries`
}

function experimentTable(day: ShownGameDay, width: number, paint: Paint = plain): string[] {
  const isOver = isGameDayOver(day)
  const rows = day.steps.map((step): readonly Cell[] => [
    step.name,
    stateWords(step, day.run),
    step.result === undefined ? '' : { text: verdictWords(step.result), tone: tones[step.result.verdict] },
    recoveryWords(step, promiseOf(day, step)),
    ...(isOver ? [] : [clockTimeOrNothing(leftOf(day, step))]),
  ])
  const head = ['EXPERIMENT', 'STATE', 'VERDICT', 'RECOVERY', ...(isOver ? [] : ['LEFT'])]
  return table(head, rows, width, paint)
}

function stateWords({ state, note, result, runs }: StepRecord, run: ShownRun | undefined): string {
  switch (state) {
    case 'planned':
      return runs.length === 0 ? 'planned' : 'begins anew'
    case 'waiting':
      return `waits: ${note}`
    case 'waits for approval':
      return state
    case 'running':
      return run === undefined ? state : placeOf(run)
    case 'skipped':
      return note
    case 'done':
      return result?.state ?? state
  }
}

const verdictWords = ({ verdict, reasons }: NonNullable<StepRecord['result']>): string =>
  reasons.length === 0 ? verdict : `${verdict}: ${reasons.join(', ')}`

function recoveryWords({ result }: StepRecord, promisedMs: Millis | undefined): string {
  const promise = promisedMs === undefined ? '' : `promised ${roundedDuration(promisedMs)}`
  if (result === undefined) return promise
  const { recoveredMs } = result
  const found = recoveredMs === undefined ? 'not recovered' : roundedDuration(recoveredMs)
  const isLate = promisedMs !== undefined && recoveredMs !== undefined && recoveredMs > promisedMs
  return [found, ...(promise === '' ? [] : [`${promise}${isLate ? ': late' : ''}`])].join(', ')
}

const specOf = ({ plan }: ShownGameDay, { name }: StepRecord) =>
  plan.experiments.find(({ spec }) => spec.name === name)

const promiseOf = (day: ShownGameDay, step: StepRecord): Millis | undefined =>
  step.result?.rtoMs ?? specOf(day, step)?.spec.recovery.rto ?? day.plan.rto

/** Returns the time up to the end of an experiment's stages; undefined for an experiment that is over. */
function leftOf(day: ShownGameDay, step: StepRecord): Millis | undefined {
  const planned = specOf(day, step)
  if (planned === undefined || step.state === 'done' || step.state === 'skipped') return undefined
  const lengthMs = lengthOf(planned.spec)
  if (step.state === 'running') return Math.max(0, lengthMs - (day.run?.elapsedMs ?? 0))
  return lengthMs + (step.state === 'waits for approval' ? 0 : planned.after)
}

/** Formats a time as minutes and seconds: `3:05`, or `1:03:05`. */
export function clockTime(ms: Millis): string {
  const seconds = Math.max(0, Math.round(ms / 1_000))
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor(seconds / 60) % 60]
  const padded = (part: number) => String(part).padStart(2, '0')
  const rest = padded(seconds % 60)
  return hours === 0 ? `${minutes}:${rest}` : `${hours}:${padded(minutes)}:${rest}`
}

const clockTimeOrNothing = (ms: Millis | undefined): string => (ms === undefined ? '' : clockTime(ms))

/** Returns the commands that a person may need now. */
function hints(day: ShownGameDay, { given }: ViewOptions): string[] {
  const { plan, state, steps, run } = day
  const next = (command: string) => commandFor(given, `breakwater ${command}`)
  if (state === 'paused')
    return [`${next(`gameday resume ${plan.name}`)} continues; ${next(`gameday stop ${plan.name}`)} ends it`]
  const waiting = steps.find((step) => step.state === 'waits for approval')
  if (state !== 'running' || waiting === undefined) return []
  return [`${next(approveCommand(waiting.name, run))} lets ${waiting.name} begin`]
}

export const approveCommand = (name: string, run: ShownRun | undefined): string =>
  `experiment approve ${name}${run?.needsSignature === true ? ' --key FILE' : ''}`

/** Returns the result of a GameDay in lines: verdicts, recovery, reasons and actions, without an average. */
export function resultLines({ result, actions, steps }: ShownGameDay): string[] {
  const { notRun, rtoMet, rtoPromised, worstRecoveryMs, isOpen } = result
  const counts = verdicts.filter((verdict) => result.verdicts[verdict] > 0)
  const words = counts.map((verdict) => `${result.verdicts[verdict]} ${verdict}`)
  const recovered = [
    ...(rtoPromised === 0 ? [] : [`${rtoMet} of ${rtoPromised} within the promised time`]),
    ...(worstRecoveryMs === undefined ? [] : [`the longest took ${roundedDuration(worstRecoveryMs)}`]),
    ...(isOpen ? ['not every experiment recovered'] : []),
  ]
  return [
    `verdicts: ${[...words, ...(notRun === 0 ? [] : [`${notRun} not run`])].join(', ') || 'none'}`,
    ...(recovered.length === 0 ? [] : [`recovery: ${recovered.join('; ')}`]),
    ...steps.flatMap(({ name, result: one }) =>
      one === undefined || isGoodResult(one) ? [] : [shown(`${name} ${one.state}: ${one.why}`)],
    ),
    ...actions.map(({ number, what, owner, due, done }) =>
      shown(
        `action ${number} (${done === undefined ? 'open' : 'done'}): ${what}, ${owner}${due === undefined ? '' : `, due ${due}`}`,
      ),
    ),
  ]
}

const isGoodResult = ({ verdict }: NonNullable<StepRecord['result']>): boolean =>
  verdict === 'passed' || verdict === 'held (weak)'

/** Whether a GameDay is over, and each of its experiments passed or held. */
export const isGood = (day: ShownGameDay): boolean =>
  day.state === 'over' && day.steps.every(({ result }) => result !== undefined && isGoodResult(result))

/** Returns a line for each change since an earlier look; `before` undefined: since the beginning. */
export function changeLines(day: ShownGameDay, before: ShownGameDay | undefined): string[] {
  const { events, observations, actions, steps, run } = day
  const dated = (at: number, words: string) => `${timeOf(at)} ${printable(words)}`
  const isNewPlace = run !== undefined && (before?.run?.id !== run.id || placeOf(before.run) !== placeOf(run))
  const waits = steps.filter(({ name, state, note }) => {
    const earlier = before?.steps.find((step) => step.name === name)
    return state === 'waiting' && (earlier?.state !== state || earlier.note !== note)
  })
  return [
    ...events.slice(before?.events.length).map(({ at, what, why }) => dated(at, `${what}: ${why}`)),
    ...waits.map(({ name, note }) => `${name} waits: ${printable(note)}`),
    ...(isNewPlace && run.state === 'running' ? [`${run.name}: ${placeOf(run)}`] : []),
    ...observations.slice(before?.observations.length).map(({ at, by, text }) => dated(at, `${by}: ${text}`)),
    ...actions
      .slice(before?.actions.length)
      .map(({ at, by, number, what }) => dated(at, `${by}: action ${number}, ${what}`)),
  ]
}
