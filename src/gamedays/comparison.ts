import { hashOf, shapeOf } from '../experiments/guarded/spec.ts'
import { type GameDayPlan, specOf } from './plan.ts'
import { type GameDayRecord, isGameDayOver } from './record.ts'
import { outcomeOf } from './report-experiments.ts'
import type { ChangedExperiment, GameDayReport, Outcome } from './report-shape.ts'

/** Returns a hash of all that a GameDay does, without its texts and persons. */
export function gameDayShape(plan: GameDayPlan): string {
  const { scope, stop, experiments } = plan
  return hashOf({
    scope,
    stop,
    experiments: experiments.map((step) => ({ after: step.after, shape: shapeOf(specOf(plan, step)) })),
  })
}

/**
 * Returns the GameDay to compare with: the last ended one before, with the name `rerunOf` or else of the same plan.
 * Undefined without one.
 */
export function earlierOf(
  { id, plan, startedAt }: GameDayRecord,
  all: readonly GameDayRecord[],
): GameDayRecord | undefined {
  const name = plan.rerunOf ?? plan.name
  return all
    .filter((one) => one.id !== id && one.plan.name === name && isGameDayOver(one))
    .filter((one) => one.startedAt < startedAt)
    .sort((a, b) => a.startedAt - b.startedAt)
    .at(-1)
}

/** Returns the change of each experiment since an earlier GameDay. Only experiments of the same shape are compared. */
export function comparisonOf(now: GameDayRecord, before: GameDayRecord): GameDayReport['comparison'] {
  const { id, plan, startedAt, state } = before
  const gone = before.steps.filter(({ name }) => now.steps.every((step) => step.name !== name))
  return {
    id,
    name: plan.name,
    startedAt: new Date(startedAt).toISOString(),
    state,
    experiments: [
      ...now.steps.map(({ name }) => changeOf(name, now, before)),
      ...gone.map(({ name }) => changeOf(name, now, before)),
    ],
  }
}

function changeOf(name: string, now: GameDayRecord, before: GameDayRecord): ChangedExperiment {
  const both = [before, now].map((day) => {
    const step = day.steps.find((one) => one.name === name)
    return step === undefined ? null : outcomeOf(step)
  })
  const [was = null, is = null] = both
  const notComparable = differenceOf(name, now, before) ?? unproven(was, is)
  return {
    name,
    notComparable: notComparable ?? null,
    before: was,
    now: is,
    change: notComparable === undefined ? changeIn(was!, is!) : null,
  }
}

/** Returns why the plans of an experiment differ; undefined for equal ones. */
function differenceOf(name: string, now: GameDayRecord, before: GameDayRecord): string | undefined {
  const [was, is] = [before, now].map(({ plan }) => {
    const step = plan.experiments.find(({ spec }) => spec.name === name)
    return step && shapeOf(specOf(plan, step))
  })
  if (was === undefined) return 'not part of the earlier GameDay'
  if (is === undefined) return 'not part of this GameDay'
  if (was !== is) return 'the plan differs'
  return now.environment === before.environment ? undefined : 'the environment differs'
}

function unproven(was: Outcome | null, is: Outcome | null): string | undefined {
  const proves = (outcome: Outcome | null) => outcome !== null && (ranks[outcome.verdict ?? ''] ?? 0) > 0
  if (!proves(was)) return 'no evidence in the earlier GameDay'
  return proves(is) ? undefined : 'no evidence in this GameDay'
}

/** Verdicts that can be compared, the best highest. */
const ranks: Readonly<Record<string, number>> = { failed: 1, 'held (weak)': 2, passed: 3 }

function changeIn(was: Outcome, is: Outcome): NonNullable<ChangedExperiment['change']> {
  const step =
    (ranks[is.verdict ?? ''] ?? 0) - (ranks[was.verdict ?? ''] ?? 0) ||
    Number(isKept(is)) - Number(isKept(was))
  return step > 0 ? 'better' : step < 0 ? 'worse' : 'the same'
}

const isKept = ({ rto }: Outcome) => rto === 'met' || rto === 'no promise'
