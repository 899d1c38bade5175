import { judgementOf } from '../../src/evidence/verdict.ts'
import { noHits, type RunRecord, type SampleRow } from '../../src/experiments/guarded/record.ts'
import type { GameDayPlan } from '../../src/gamedays/plan.ts'
import { type GameDayRecord, resultOf, type StepRecord } from '../../src/gamedays/record.ts'
import { type ReportParts, reportOn } from '../../src/gamedays/report.ts'
import { gameDayPlanSchema } from '../../src/gateway/gamedays.ts'
import { version } from '../../src/protocol/identity.ts'
import { figuresOf } from '../experiments/guarded/figures.ts'
import { recordOf } from '../experiments/guarded/world.ts'

/** The begin of the GameDays, and the time of their reports. */
export const BEGAN = Date.UTC(2026, 9, 1, 9)
export const NOW = Date.UTC(2026, 10, 30, 12)

const MINUTE = 60_000

/** An experiment of a plan; its claims need few calls for a proof. */
export const specOf = (name: string, more: object = {}) => ({
  name,
  title: `the experiment ${name}`,
  owner: 'platform',
  reason: 'to see',
  hypothesis: { steadyState: ['error_ratio < 5%', 'p95 < 500ms'] },
  targets: { server: 'search' },
  faults: [{ name: 'slow', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '20ms' } }],
  stages: [{ share: 0.5, duration: '10s' }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: '50%' }] },
  recovery: { within: '60s' },
  ...more,
})

export const planOf = (more: object = {}, names: readonly string[] = ['slow', 'gone']): GameDayPlan =>
  gameDayPlanSchema.parse({
    name: 'payments-q4',
    title: 'Payments tools, Q4',
    roles: { lead: 'payments-oncall', observer: 'platform' },
    hypothesis: 'Agents finish orders while search is slow or gone.',
    scope: { servers: ['search'], environment: 'staging' },
    rto: '30s',
    communication: { before: '#payments, 1 day', during: '#gameday' },
    experiments: names.map((name) => ({ spec: specOf(name), supports: ['dora-25-1-scenario'] })),
    ...more,
  })

const rows = (failed: number): SampleRow[] =>
  Array.from({ length: 12 }, (_, at) => {
    const figures = { calls: 40, failed: 0, begun: 40, retries: 0, rejections: {}, p50: 10, p95: 20 }
    const isStage = at >= 2
    return {
      atMs: (at + 1) * 1_000,
      phase: isStage ? 'stage' : 'baseline',
      share: isStage ? 0.5 : 0,
      injected: isStage ? 10 : 0,
      arms: isStage ? { control: figures, treatment: { ...figures, failed } } : { all: figures },
    }
  })

/** An ended run of an experiment: `failed` calls of 40 fail in each second of the stage. */
export function runOf(
  id: string,
  name: string,
  { failed = 0, ...more }: Partial<RunRecord> & { failed?: number } = {},
): RunRecord {
  const { spec } = planOf({}, [name]).experiments[0]!
  const calls = 400
  const found = { claim: 'error_ratio < 5%', found: `${(2.5 * failed).toFixed(1)}%`, holds: failed < 2 }
  return {
    ...recordOf({ ...spec, recovery: { ...spec.recovery, rto: 30_000 } }, { id }),
    state: failed < 2 ? 'completed' : 'deviated',
    phase: 'over',
    reason: failed < 2 ? 'the hypothesis held' : 'error_ratio < 5% did not hold',
    requestedAt: BEGAN,
    beganAt: BEGAN + MINUTE,
    endedAt: BEGAN + 2 * MINUTE,
    stage: 0,
    approver: 'boss',
    proof: { proved: 'claimed' },
    hypothesis: { before: [{ claim: 'error_ratio < 5%', found: '0%', holds: true }], after: [] },
    baseline: figuresOf({ calls: 80, p95: 20 }),
    stages: [
      {
        share: 0.5,
        beganAtMs: 2_000,
        endedAtMs: 12_000,
        control: figuresOf({ calls, p95: 20 }),
        treatment: figuresOf({ calls, failed: 10 * failed, p95: 20 }),
        cells: { control: [[270, calls]], treatment: [[270, calls]] },
        claims: [found, { claim: 'p95 < 500ms', found: '20ms', holds: true }],
      },
    ],
    samples: rows(failed),
    faults: [{ name: 'slow', type: 'conn.latency', ...noHits, decided: 100, injected: 100, delayed: 100 }],
    rollback: { armed: [], arms: [], atMs: 12_000, tookMs: 1, chaos: 'disarmed', troubled: [] },
    recovery: { recoveredAfterMs: 9_000, steadyAfterMs: 500, layers: {}, waitedMs: 500, limitMs: 60_000 },
    ...more,
  }
}

/** A step that is done with these runs, the last of which gives the result. */
export const doneBy = (...runs: readonly [RunRecord, ...RunRecord[]]): StepRecord => {
  const last = runs.at(-1)!
  return {
    name: last.name,
    state: 'done',
    runs: runs.map(({ id }) => id),
    note: '',
    beganAt: last.beganAt,
    result: resultOf(last),
  }
}

export const notRun = (name: string, more: Partial<StepRecord> = {}): StepRecord => ({
  name,
  state: 'planned',
  runs: [],
  note: '',
  beganAt: undefined,
  result: undefined,
  ...more,
})

/** A GameDay of an hour that is over, with two experiments that passed. */
export function gameDayOf(more: Partial<GameDayRecord> = {}): GameDayRecord {
  return {
    format: 1,
    id: 'gd-mfa1b2c3-0123abcd',
    plan: planOf(),
    isComplete: true,
    version: '0.1.0',
    environment: 'staging',
    by: 'alice',
    isOfAgent: false,
    state: 'over',
    reason: 'all experiments were run or skipped',
    startedAt: BEGAN,
    endedAt: BEGAN + 60 * MINUTE,
    steps: [doneBy(runOf('run-1', 'slow')), doneBy(runOf('run-2', 'gone'))],
    pauses: [],
    observations: [],
    actions: [],
    events: [
      { at: BEGAN, what: 'begun', why: 'by alice' },
      { at: BEGAN + 60 * MINUTE, what: 'over', why: 'all experiments were run or skipped' },
    ],
    ...more,
  }
}

/** Returns the report on a GameDay, as after a round trip by disk. */
export function reportOf(
  record: GameDayRecord,
  {
    runs = [runOf('run-1', 'slow'), runOf('run-2', 'gone')],
    ...more
  }: Partial<ReportParts> & {
    runs?: readonly RunRecord[]
  } = {},
) {
  const stored = { records: new Map(runs.map((run) => [run.id, run])), summaries: new Map() }
  return reportOn(JSON.parse(JSON.stringify(record)) as GameDayRecord, {
    stored,
    isDamaged: false,
    earlier: undefined,
    nowMs: NOW,
    version,
    ...more,
  })
}

/** The verdict of a run, for tests of the fixtures themselves. */
export const verdictOf = (run: RunRecord) => judgementOf(run).verdict
