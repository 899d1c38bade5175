import { withoutSecrets } from '../chaos/plan/schema.ts'
import type { GuardedExperiments, Survey } from '../experiments/guarded/guarded.ts'
import type { RunRecord } from '../experiments/guarded/record.ts'
import { loadSchema } from '../experiments/guarded/spec.ts'
import { AgentStepRuns, type KnownAgents } from '../gamedays/agent-step-runs.ts'
import type { Begun, StepRuns } from '../gamedays/gameday.ts'
import { GameDays, MAX_KEPT, type Requester } from '../gamedays/gamedays.ts'
import { gameDayPlan, type GameDayPlan } from '../gamedays/plan.ts'
import { type GameDayRecord, isGameDayOver } from '../gamedays/record.ts'
import { isWithin } from '../gamedays/stop-conditions.ts'
import { GameDayStore, readGameDays, type StoredGameDays } from '../gamedays/store.ts'
import { workload } from '../load/workload.ts'
import { wentWrong } from '../mesh/classify.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import { rejectionsIn } from '../mesh/record.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { pagesPeople } from '../registry/health/notices.ts'
import type { HealthWatch } from '../registry/health/watch.ts'
import type { Log } from '../telemetry/log.ts'
import type { CallListener } from './generation.ts'
import { newsOf } from './gameday-notices.ts'
import type { GatewayRunIndex } from './guarded/run-index.ts'
import { experimentSpec } from './guarded/spec.ts'

/** The schema of a GameDay, with all known faults and workloads. */
export const gameDayPlanSchema = gameDayPlan(experimentSpec, loadSchema(workload))

export interface GatewayGameDaysParts {
  readonly clock: Clock
  readonly log: Log
  readonly guarded: GuardedExperiments
  /** Resolves with the record of an ended run, as far as kept. */
  readonly find: (id: string) => Promise<RunRecord | undefined>
  /** Takes each GameDay that is over; undefined without an index of runs. */
  readonly index: Pick<GatewayRunIndex, 'has' | 'addGameDay'> | undefined
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly health: Pick<HealthWatch, 'incidents' | 'announce'>
  /** Undefined without the control MCP server. */
  readonly agents: () => KnownAgents | undefined
  /** Recompiles the config in force. */
  readonly refresh: () => void
  readonly stateDir: string | undefined
  /** The reason when this process does not hold the lock on the state folder; undefined when it holds the lock. */
  readonly stateProblem: string | undefined
  readonly environment: string
}

/** Creates the GameDays of the gateway. A GameDay that was under way when the last process ended is paused. */
export async function openGameDays(parts: GatewayGameDaysParts): Promise<GameDays> {
  const { clock, log, live, health, refresh, stateDir, environment } = parts
  const opened = await open(parts)
  if ('problem' in opened && stateDir !== undefined)
    log.warn({ stateDir, problem: opened.problem }, 'GameDays are off: their records cannot be written')
  const gameDays = new GameDays({
    clock,
    environment,
    store: 'problem' in opened ? opened : opened.store,
    runsOf: (plan, requester) => runsOf(plan, requester, parts),
    refusals: (plan) => refusalsOf(plan, { live, environment }),
    withoutSecrets,
    incidents: () => health.incidents.open,
    refresh,
    onState(record) {
      const { id, plan, state, reason } = record
      log.warn({ gameDay: plan.name, id, state, reason }, 'GameDay')
      if (isGameDayOver(record)) void addToIndex(record, parts)
      tellWebhook(record, parts)
    },
    onProblem: ({ id }, problem) =>
      log.error({ id, problem }, 'the record of a GameDay could not be written'),
  })
  if ('stored' in opened) {
    const { records, problems, files } = opened.stored
    for (const { file, why } of problems) log.warn({ file, why }, 'a GameDay cannot be used')
    await gameDays.recover(records, files)
    // An earlier process may have ended between the end of a GameDay and its line in the index.
    for (const record of records)
      if (isGameDayOver(record) && parts.index?.has(record.id) === false) await addToIndex(record, parts)
  }
  return gameDays
}

/** Adds a GameDay to the index of runs, by the records of its runs that are kept. Never rejects. */
async function addToIndex(
  record: GameDayRecord,
  { guarded, find, index }: Pick<GatewayGameDaysParts, 'guarded' | 'find' | 'index'>,
): Promise<void> {
  if (index === undefined) return
  const runs: RunRecord[] = []
  for (const { name, runs: ids, result } of record.steps) {
    const id = result === undefined ? undefined : ids.at(-1)
    if (id === undefined) continue
    // The last run may not be on disk yet.
    const last = guarded.get(name)
    const run = last?.id === id ? last : await find(id)
    if (run !== undefined) runs.push(run)
  }
  await index.addGameDay(record, runs)
}

async function open({
  stateDir,
  stateProblem,
}: GatewayGameDaysParts): Promise<
  { readonly problem: string } | { readonly store: GameDayStore; readonly stored: StoredGameDays }
> {
  if (stateDir === undefined) return { problem: 'gateway.stateDir is not set' }
  if (stateProblem !== undefined) return { problem: stateProblem }
  try {
    return { store: await GameDayStore.open(stateDir), stored: await readGameDays(stateDir, MAX_KEPT) }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

/** Tells the webhook of a GameDay the state of the GameDay. */
export function tellWebhook(
  record: GameDayRecord,
  { clock, health }: Pick<GatewayGameDaysParts, 'clock' | 'health'>,
): void {
  const { webhook } = record.plan.communication
  if (webhook !== undefined) health.announce(webhook, newsOf(record, clock.wall()))
}

/** Returns the listeners that count calls of servers outside of the scope; empty unless a GameDay has such limits. */
export function listenersOf(gameDays: GameDays): readonly CallListener[] {
  if (!gameDays.hearsCalls) return []
  const hear: CallListener = ({ server, tool, record }, outcome, tookMs) => {
    if (tool === undefined) return
    gameDays.called(server, {
      isWrong: wentWrong(outcome, record),
      isRejected: outcome.kind === 'rejected',
      attempts: record.attempts,
      rejections: rejectionsIn(record, outcome),
      tookMs,
    })
  }
  return [hear]
}

function refusalsOf(
  { scope, communication: { webhook } }: GameDayPlan,
  { live, environment }: Pick<GatewayGameDaysParts, 'live' | 'environment'>,
): string[] {
  const { health } = live.current.config
  const refusals: string[] = []
  if (scope.environment !== undefined && scope.environment !== environment)
    refusals.push(
      `scope.environment is ${scope.environment}, and gateway.environment was ${environment} when the gateway started`,
    )
  if (webhook === undefined) return refusals
  const found = health.webhooks.find(({ name }) => name === webhook)
  if (found === undefined) refusals.push(`communication.webhook: health.webhooks has no webhook "${webhook}"`)
  else if (pagesPeople(found))
    refusals.push(
      `communication.webhook: ${webhook} pages people: a webhook of type pagerduty takes news only if its URL ends in /v2/enqueue, so that the gateway knows the URL of change events`,
    )
  return refusals
}

/**
 * Returns the runs that a person or an agent begins. The targets of each run have to be in the scope of the GameDay.
 */
function runsOf(
  plan: GameDayPlan,
  { by, isOfAgent }: Requester,
  { clock, guarded, agents }: Pick<GatewayGameDaysParts, 'clock' | 'guarded' | 'agents'>,
): StepRuns {
  const isInScope = isWithin(plan.scope)
  const outside = ({ targets }: Pick<Survey, 'targets'>) =>
    targets.servers.flatMap(({ name }) =>
      isInScope(name) ? [] : [`the server ${name} is outside of the scope of the GameDay`],
    )
  if (isOfAgent) return new AgentStepRuns({ clock, guarded, agents, plan, by, outside })
  return {
    async begin(spec): Promise<Begun> {
      const request = { by, approvedBy: undefined, firstStage: 0 }
      const refusals = outside(guarded.plan(spec, request))
      if (refusals.length > 0) return { ok: false, refusals, isBusy: false }
      const { isBusy } = guarded
      const asked = await guarded.run(spec, { ...request, recheck: outside })
      return asked.ok ? asked : { ...asked, isBusy }
    },
    stop({ id, name }, by, why) {
      if (guarded.get(name)?.id === id) guarded.stop(name, by, why)
    },
    get: (name) => guarded.get(name),
  }
}
