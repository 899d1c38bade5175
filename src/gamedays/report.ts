import { hashOf } from '../experiments/guarded/spec.ts'
import { dayOf } from '../evidence/period.ts'
import { roundedDuration } from '../units/duration.ts'
import { clip } from '../units/recent.ts'
import { comparisonOf, gameDayShape } from './comparison.ts'
import { gapsOf } from './gaps.ts'
import { lossesOf } from './losses.ts'
import { type Action, type GameDayRecord, gameDayResult } from './record.ts'
import { experimentsOf, type StoredRuns } from './report-experiments.ts'
import { gameDayReport, type GameDayReport } from './report-shape.ts'

export interface ReportParts {
  readonly stored: StoredRuns
  /** True if the journal or the index of runs failed its check. */
  readonly isDamaged: boolean
  /** The GameDay to compare with; see `earlierOf`. */
  readonly earlier: GameDayRecord | undefined
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number
  /** Version of Breakwater. */
  readonly version: string
}

/** Longest text of an event, in characters. */
const MOST_TEXT = 2_000

/** Returns the report on a GameDay. */
export function reportOn(record: GameDayRecord, parts: ReportParts): GameDayReport {
  const { stored, isDamaged, earlier, nowMs, version } = parts
  const { plan, startedAt, endedAt } = record
  const experiments = experimentsOf(record, stored)
  const actions = record.actions.map((action) => actionOf(action, nowMs))
  // Parsed, so that its keys have the order in which a reader writes the document anew.
  return gameDayReport.parse({
    format: 1,
    kind: 'gameday',
    madeAt: isoOf(nowMs),
    version,
    gameDay: {
      id: record.id,
      name: plan.name,
      title: plan.title,
      state: record.state,
      reason: clip(record.reason, MOST_TEXT),
      environment: record.environment,
      by: record.by,
      isOfAgent: record.isOfAgent,
      version: record.version,
      startedAt: isoOf(startedAt),
      endedAt: endedAt === undefined ? null : isoOf(endedAt),
      pausedMs: pausedMs(record, nowMs),
      plan: hashOf(plan),
      shape: gameDayShape(plan),
    },
    result: resultOf(record, actions),
    objective: {
      hypothesis: plan.hypothesis,
      servers: plan.scope.servers,
      rtoMs: plan.rto ?? null,
    },
    scenario: plan.experiments.map(({ spec, after, supports }) => ({
      name: spec.name,
      title: spec.title ?? null,
      owner: spec.owner,
      reason: spec.reason,
      afterMs: after,
      faults: spec.faults.map(({ name, type }) => ({ name, type })),
      supports,
    })),
    participants: Object.entries(plan.roles).map(([role, who]) => ({ role, who })),
    communication: {
      before: plan.communication.before ?? null,
      during: plan.communication.during ?? null,
      webhook: plan.communication.webhook ?? null,
    },
    timeline: timelineOf(record, nowMs),
    experiments,
    comparison: earlier === undefined ? null : comparisonOf(record, earlier),
    gaps: gapsOf(record, experiments, isDamaged),
    // Open actions first; the most overdue and the next ones of these first.
    actions: actions.sort(
      (a, b) =>
        Number(a.state === 'done') - Number(b.state === 'done') ||
        (a.due ?? '9999').localeCompare(b.due ?? '9999') ||
        a.number - b.number,
    ),
    limits: limitsOf(record),
    losses: lossesOf(record, stored),
  } satisfies GameDayReport)
}

const isoOf = (ms: number): string => new Date(ms).toISOString()

function resultOf(record: GameDayRecord, actions: GameDayReport['actions']): GameDayReport['result'] {
  const { verdicts, notRun, rtoMet, rtoPromised, worstRecoveryMs, openActions } = gameDayResult(record)
  return {
    experiments: record.steps.length,
    verdicts,
    notRun,
    rtoMet,
    rtoPromised,
    worstRecoveryMs: worstRecoveryMs ?? null,
    notRecovered: record.steps.filter(
      ({ result }) =>
        result !== undefined && result.verdict !== 'no evidence' && result.recoveredMs === undefined,
    ).length,
    openActions,
    overdueActions: actions.filter(({ state }) => state === 'overdue').length,
  }
}

const pausedMs = ({ pauses }: GameDayRecord, nowMs: number): number =>
  pauses.reduce((sum, { from, until }) => sum + Math.max(0, (until ?? nowMs) - from), 0)

/** An action is overdue from the day after its date, in UTC. */
function actionOf({ number, what, owner, due, at, by, done }: Action, nowMs: number) {
  const isOverdue = due !== undefined && dayOf(nowMs) > due
  return {
    number,
    what,
    owner,
    due: due ?? null,
    state: done !== undefined ? ('done' as const) : isOverdue ? ('overdue' as const) : ('open' as const),
    at: isoOf(at),
    by,
    doneAt: done === undefined ? null : isoOf(done.at),
    doneBy: done?.by ?? null,
  }
}

/** Returns events, pauses, observations and actions in one order. */
function timelineOf(record: GameDayRecord, nowMs: number): GameDayReport['timeline'] {
  const { events, pauses, observations, actions, steps } = record
  const isExperiment = (what: string) => steps.some(({ name }) => name === what)
  const rows: (Omit<GameDayReport['timeline'][number], 'at'> & { readonly at: number })[] = [
    // A pause has its own row, with its length.
    ...events
      .filter(({ what }) => what !== 'paused' || isExperiment(what))
      .map(({ at, what, why }) => ({ at, kind: 'event' as const, what, by: null, text: why })),
    ...pauses.map(({ from, until, by, why }) => ({
      at: from,
      kind: 'pause' as const,
      what: `paused for ${roundedDuration(Math.max(0, (until ?? nowMs) - from))}${until === undefined ? ' so far' : ''}`,
      by,
      text: why,
    })),
    ...observations.map(({ at, by, text, step }) => ({
      at,
      kind: 'observation' as const,
      what: step === undefined ? 'observed' : `observed during ${step}`,
      by,
      text,
    })),
    ...actions.flatMap(({ number, at, by, what, done }) => [
      { at, kind: 'action' as const, what: `action ${number} recorded`, by, text: what },
      ...(done === undefined
        ? []
        : [{ at: done.at, kind: 'action' as const, what: `action ${number} done`, by: done.by, text: what }]),
    ]),
  ]
  // Stable: what was written first stays first within a millisecond.
  return rows
    .sort((a, b) => a.at - b.at)
    .map(({ at, text, ...row }) => ({ at: isoOf(at), ...row, text: clip(text, MOST_TEXT) }))
}

const limitsOf = ({ environment }: GameDayRecord): string[] => [
  'The results are counts: nothing here is averaged, and the report gives no score. Whether the exercise was enough, a person must judge.',
  `The runs cover the path of calls through the gateway, and nothing else, in the environment ${environment}.`,
  'A test in staging is no test in production.',
  'A failed experiment is a result, too. An experiment with the verdict "no evidence" shows nothing.',
  'Each result comes from a single run: a difference from the earlier GameDay may be chance.',
  'Roles, communication, observations and actions are as people entered these. Names are claimed, unless an approval is proved by a key.',
  'A signature says who made this report from the stored records. Whether the records themselves are unchanged, the signature does not say.',
]
