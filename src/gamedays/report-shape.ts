import { z } from 'zod'
import { runSummary } from '../evidence/summary.ts'
import { reasonNames, verdicts } from '../evidence/verdict-names.ts'
import { gameDayStates, stepStates } from './record.ts'

const text = z.string().max(10_000)
const count = z.int().min(0)
/** Milliseconds. */
const ms = z.number().min(0)
const moment = z.iso.datetime()
const day = z.iso.date()
const verdict = z.enum(verdicts)

const { claims, faults } = runSummary.shape

/**
 * Recovery against the promise: `open` without a recovery, `not proven` for an experiment that is no evidence.
 */
const rto = z.enum(['met', 'missed', 'open', 'no promise', 'not proven'])

const outcome = z.strictObject({
  /** Null: the experiment was not run, or only interrupted. */
  verdict: verdict.nullable(),
  recoveredMs: ms.nullable(),
  rto,
})

const experiment = z.strictObject({
  name: text,
  state: z.enum(stepStates),
  /** Why the experiment waits, or was not run. */
  note: text,
  ...outcome.shape,
  reasons: z.array(z.enum(reasonNames)),
  /** How the run ended, in words. */
  why: text.nullable(),
  promisedMs: ms.nullable(),
  endedAt: moment.nullable(),
  /** All runs, the latest last. `record`: where the facts below come from, for the last run. */
  runs: z.array(z.strictObject({ id: text, record: z.enum(['journal', 'index', 'gone']) })).max(1_000),
  claims,
  faults,
  approver: text.nullable(),
  /** How the approver was proved: `key` by a signature, `claimed` by a name. */
  approverProof: text.nullable(),
  /** Faults or arms that the rollback left behind. */
  leftBehind: z.array(text),
})

const changed = z.strictObject({
  name: text,
  /** Why both results cannot be compared; null for comparable results. */
  notComparable: text.nullable(),
  /** Null: not part of this GameDay. */
  before: outcome.nullable(),
  now: outcome.nullable(),
  /** By verdict first, then by the kept promise. Null when not comparable. */
  change: z.enum(['better', 'worse', 'the same']).nullable(),
})

/** A report on a GameDay, format 1. Moments and days are in UTC. */
export const gameDayReport = z.strictObject({
  format: z.literal(1),
  kind: z.literal('gameday'),
  madeAt: moment,
  /** Version of Breakwater that made the report. */
  version: text,
  gameDay: z.strictObject({
    id: text,
    name: text,
    title: text,
    state: z.enum(gameDayStates),
    reason: text,
    environment: text,
    by: text,
    isOfAgent: z.boolean(),
    /** Version of Breakwater that ran the GameDay. */
    version: text,
    startedAt: moment,
    endedAt: moment.nullable(),
    pausedMs: ms,
    plan: text,
    shape: text,
  }),
  result: z.strictObject({
    experiments: count,
    verdicts: z.record(verdict, count),
    notRun: count,
    rtoMet: count,
    rtoPromised: count,
    /** Longest recovery; null without a measured one. */
    worstRecoveryMs: ms.nullable(),
    notRecovered: count,
    openActions: count,
    overdueActions: count,
  }),
  objective: z.strictObject({
    hypothesis: text,
    servers: z.array(text),
    rtoMs: ms.nullable(),
  }),
  scenario: z.array(
    z.strictObject({
      name: text,
      title: text.nullable(),
      owner: text,
      reason: text,
      afterMs: ms,
      faults: z.array(z.strictObject({ name: text, type: text })),
      supports: z.array(text),
    }),
  ),
  participants: z.array(z.strictObject({ role: text, who: text })),
  communication: z.strictObject({
    before: text.nullable(),
    during: text.nullable(),
    webhook: text.nullable(),
  }),
  timeline: z.array(
    z.strictObject({
      at: moment,
      kind: z.enum(['event', 'pause', 'observation', 'action']),
      what: text,
      /** Null for events of the GameDay itself. */
      by: text.nullable(),
      text,
    }),
  ),
  experiments: z.array(experiment),
  comparison: z
    .strictObject({
      id: text,
      name: text,
      startedAt: moment,
      state: z.enum(gameDayStates),
      experiments: z.array(changed),
    })
    .nullable(),
  gaps: z.array(z.strictObject({ experiment: text.nullable(), text })),
  actions: z.array(
    z.strictObject({
      number: count,
      what: text,
      owner: text,
      due: day.nullable(),
      state: z.enum(['open', 'overdue', 'done']),
      at: moment,
      by: text,
      doneAt: moment.nullable(),
      doneBy: text.nullable(),
    }),
  ),
  limits: z.array(text),
  /** Calls over time: for each run of an experiment whose record is kept, rows of milliseconds since the begin. */
  losses: z.array(
    z.strictObject({
      experiment: text,
      run: text,
      rows: z.array(
        z.tuple([
          z.number().describe('end of the row, in milliseconds since the begin of the GameDay'),
          count.describe('ended calls'),
          count.describe('failed calls'),
          ms.nullable().describe('highest p95 of the row, in milliseconds'),
        ]),
      ),
    }),
  ),
})

export type GameDayReport = z.output<typeof gameDayReport>
export type ExperimentReport = z.output<typeof experiment>
export type Outcome = z.output<typeof outcome>
export type ChangedExperiment = z.output<typeof changed>
