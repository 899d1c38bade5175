import { formatDuration, roundedDuration } from '../units/duration.ts'
import { firstOf, numbered } from '../units/numbered.ts'
import { type GameDayRecord, GATEWAY, isGameDayOver, processEnds } from './record.ts'
import type { ExperimentReport, GameDayReport } from './report-shape.ts'

type Gap = GameDayReport['gaps'][number]

/**
 * Returns what a GameDay does not show, or leaves to do. `isDamaged`: the journal of runs or the index failed its check.
 */
export function gapsOf(
  record: GameDayRecord,
  experiments: readonly ExperimentReport[],
  isDamaged: boolean,
): Gap[] {
  return [
    ...gapsOfAll(record, experiments, isDamaged),
    ...experiments.flatMap((one) => gapsOfOne(one, record)),
  ]
}

function gapsOfAll(
  { state, reason, pauses, actions }: GameDayRecord,
  experiments: readonly ExperimentReport[],
  isDamaged: boolean,
): Gap[] {
  const ends = pauses.filter(
    ({ by, why }) => by === GATEWAY && (Object.values(processEnds) as string[]).includes(why),
  )
  const isClean = experiments.every(
    ({ verdict, rto }) => isHeld(verdict) && rto !== 'open' && rto !== 'missed',
  )
  const found: [string, boolean][] = [
    [`the GameDay is ${state}: this report is provisional`, !isGameDayOver({ state })],
    [`the GameDay was stopped before its end: ${reason}`, state === 'stopped'],
    [`the gateway restarted ${numbered(ends.length, 'time')} during the GameDay`, ends.length > 0],
    ['the stored runs failed their check: `breakwater experiment verify` lists the damage', isDamaged],
    ['the GameDay shows shortcomings, and nobody recorded an action', !isClean && actions.length === 0],
  ]
  return found.flatMap(([text, isGap]) => (isGap ? [{ experiment: null, text }] : []))
}

const isHeld = (verdict: ExperimentReport['verdict']) => verdict === 'passed' || verdict === 'held (weak)'

function gapsOfOne(one: ExperimentReport, { plan, steps }: GameDayRecord): Gap[] {
  const { name, verdict, reasons, note, rto, recoveredMs, promisedMs, leftBehind, runs } = one
  const { supports = [] } = plan.experiments.find(({ spec }) => spec.name === name) ?? {}
  const meant = supports.length === 0 ? '' : `; it was meant for ${firstOf(supports)}`
  const why = note === '' ? '' : `: ${note}`
  const last = runs.at(-1)
  const isDone = steps.find((step) => step.name === name)?.result !== undefined
  const found: [string, boolean][] = [
    [`not run${why}${meant}`, verdict === null],
    [`no evidence: ${reasons.join(', ')}${meant}`, verdict === 'no evidence'],
    ['no recovery was measured', rto === 'open'],
    [
      `recovered after ${roundedDuration(recoveredMs ?? 0)}, later than the promised ${formatDuration(promisedMs ?? 0)}`,
      rto === 'missed',
    ],
    [`left behind by the rollback: ${firstOf(leftBehind)}`, leftBehind.length > 0],
    [
      `the record of run ${last?.id} is no longer kept${last?.record === 'index' ? ': its figures come from the index of runs' : ', and the index has no summary of it'}`,
      isDone && last !== undefined && last.record !== 'journal',
    ],
  ]
  return found.flatMap(([text, isGap]) => (isGap ? [{ experiment: name, text }] : []))
}
