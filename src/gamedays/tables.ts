import { tableOf, type ColumnOf, type Table } from '../evidence/table.ts'
import {
  type Action,
  type GameDayRecord,
  gameDayResult,
  type Observation,
  type StepRecord,
} from './record.ts'

/** Returns a table with a row for each part of a GameDay, with `gameday_id` in front. */
const partsOf = <Row>(
  name: string,
  rowsOf: (record: GameDayRecord) => readonly Row[],
  columns: readonly ColumnOf<Row, GameDayRecord>[],
): Table<GameDayRecord> => tableOf(name, rowsOf, [['gameday_id', 'text', (_, { id }) => id], ...columns])

const countOf =
  (count: (result: ReturnType<typeof gameDayResult>) => number) =>
  (record: GameDayRecord): number =>
    count(gameDayResult(record))

const gamedays = partsOf<GameDayRecord>('gamedays', (record) => [record], [
  ['name', 'text', ({ plan }) => plan.name],
  ['title', 'text', ({ plan }) => plan.title],
  ['environment', 'text', ({ environment }) => environment],
  ['started_by', 'text', ({ by }) => by],
  ['is_of_agent', 'flag', ({ isOfAgent }) => isOfAgent],
  ['version', 'text', ({ version }) => version],
  ['state', 'text', ({ state }) => state],
  ['reason', 'text', ({ reason }) => reason],
  ['started_at', 'time', ({ startedAt }) => startedAt],
  ['ended_at', 'time?', ({ endedAt }) => endedAt ?? null],
  ['experiments', 'count', ({ steps }) => steps.length],
  ['passed', 'count', countOf(({ verdicts }) => verdicts.passed)],
  ['held_weak', 'count', countOf(({ verdicts }) => verdicts['held (weak)'])],
  ['failed', 'count', countOf(({ verdicts }) => verdicts.failed)],
  ['no_evidence', 'count', countOf(({ verdicts }) => verdicts['no evidence'])],
  ['not_run', 'count', countOf(({ notRun }) => notRun)],
  ['rto_met', 'count', countOf(({ rtoMet }) => rtoMet)],
  ['rto_promised', 'count', countOf(({ rtoPromised }) => rtoPromised)],
  ['worst_recovery_ms', 'number?', (record) => gameDayResult(record).worstRecoveryMs ?? null],
  ['is_open', 'flag', (record) => gameDayResult(record).isOpen],
  ['pauses', 'count', ({ pauses }) => pauses.length],
  ['open_actions', 'count', countOf(({ openActions }) => openActions)],
])

const experiments = partsOf<StepRecord>('gameday_experiments', ({ steps }) => steps, [
  ['name', 'text', ({ name }) => name],
  ['state', 'text', ({ state }) => state],
  ['note', 'text?', ({ note }) => note || null],
  ['run_id', 'text?', ({ runs, result }) => (result === undefined ? null : (runs.at(-1) ?? null))],
  ['runs', 'json', ({ runs }) => JSON.stringify(runs)],
  ['verdict', 'text?', ({ result }) => result?.verdict ?? null],
  ['reasons', 'json', ({ result }) => JSON.stringify(result?.reasons ?? [])],
  ['recovery_ms', 'number?', ({ result }) => result?.recoveredMs ?? null],
  ['rto_ms', 'number?', ({ result }) => result?.rtoMs ?? null],
  ['ended_at', 'time?', ({ result }) => result?.endedAt ?? null],
])

const observations = partsOf<Observation>('observations', (record) => record.observations, [
  ['observed_at', 'time', ({ at }) => at],
  ['observer', 'text', ({ by }) => by],
  ['text', 'text', ({ text }) => text],
  ['experiment', 'text?', ({ step }) => step ?? null],
])

const actions = partsOf<Action>('actions', (record) => record.actions, [
  ['action_number', 'count', ({ number }) => number],
  ['what', 'text', ({ what }) => what],
  ['owner', 'text', ({ owner }) => owner],
  ['due_on', 'text?', ({ due }) => due ?? null],
  ['recorded_at', 'time', ({ at }) => at],
  ['recorded_by', 'text', ({ by }) => by],
  ['is_done', 'flag', ({ done }) => done !== undefined],
  ['done_at', 'time?', ({ done }) => done?.at ?? null],
  ['done_by', 'text?', ({ done }) => done?.by ?? null],
])

/**
 * The tables over the GameDays of a state folder, as in `runTables`. `run_id` of an experiment is its run in `runs`. The
 * plan, without its secrets, is in no table.
 */
export const gameDayTables: readonly Table<GameDayRecord>[] = [gamedays, experiments, observations, actions]
