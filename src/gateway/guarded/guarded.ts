import type { Controller } from '../../chaos/control/controller.ts'
import { openKey } from '../../chaos/journal/head.ts'
import { withoutSecrets } from '../../chaos/plan/schema.ts'
import type { Experiments } from '../../experiments/experiments.ts'
import type { GuardedArms } from '../../experiments/guarded/arms.ts'
import { type GuardedEvent, GuardedExperiments } from '../../experiments/guarded/guarded.ts'
import { isOver, type RunRecord } from '../../experiments/guarded/record.ts'
import { journalFolder, type OpenedJournal, RunJournal } from '../../evidence/journal.ts'
import type { Clock } from '../../mesh/clock.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import type { MeshEvent, PolicyContext, StateStore } from '../../mesh/policy.ts'
import type { Live } from '../../mesh/live.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'
import type { KnownServer } from '../../registry/known-server.ts'
import type { Log } from '../../telemetry/log.ts'
import { loadProblems, playLoad } from './load.ts'
import { PlanStates } from '../../evidence/plan-states.ts'
import { type GatewayRunIndex, openRunIndex } from './run-index.ts'
import { groundOf, survey } from './survey.ts'
import { proofOf, worldOf, type WorldParts } from './world.ts'

export interface GuardedGatewayParts {
  readonly clock: Clock
  readonly log: Log
  readonly controller: Controller
  readonly experiments: Experiments
  readonly arms: GuardedArms
  readonly state: StateStore
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  readonly refresh: () => void
  readonly data: () => string | undefined
  /** `gateway.stateDir` and `gateway.environment`, as at boot. */
  readonly stateDir: string | undefined
  readonly environment: string
  readonly needsSignature: boolean
  readonly mayApproveOwn: boolean
  /** Hears of the end of each run, with its record. */
  readonly onOver: (run: RunRecord) => void
  readonly exceededBy: WorldParts['exceededBy']
  /** The reason when this process does not hold the lock on the state folder; undefined when it holds the lock. */
  readonly stateProblem: string | undefined
}

export interface OpenedGuarded {
  readonly guarded: GuardedExperiments
  /** Runs of earlier processes. */
  readonly earlier: readonly RunRecord[]
  /** Resolves with a sealed run of the journal; undefined for others. */
  readonly find: (id: string) => Promise<RunRecord | undefined>
  /** The plans in the index of runs; none without an index. */
  readonly plans: PlanStates
  /** Undefined without a state folder, or when the folder cannot be used. */
  readonly index: GatewayRunIndex | undefined
}

/** Creates the guarded experiments of the gateway. Records an earlier process's unfinished runs as failed. */
export async function openGuarded(parts: GuardedGatewayParts): Promise<OpenedGuarded> {
  const { clock, log, stateDir } = parts
  const opened = await openJournal(parts)
  if ('problem' in opened && stateDir !== undefined)
    log.warn(
      { stateDir, problem: opened.problem },
      'guarded experiments are off: their journal cannot be written',
    )
  const { journal, runs, problems } =
    'problem' in opened ? { journal: opened, runs: [], problems: [] } : opened
  for (const { file, why } of problems) log.warn({ file, why }, 'the journal of experiments is damaged')
  let index: GatewayRunIndex | undefined
  const guarded = new GuardedExperiments({
    clock,
    journal,
    survey(spec) {
      const found = survey(spec, parts)
      return { ...found, refusals: [...found.refusals, ...loadProblems(spec, parts)] }
    },
    groundOf: (spec) => groundOf(spec, parts),
    worldOf: (run, meter) =>
      worldOf(run, meter, {
        ...parts,
        play: (load, onEnd, onReady) => playLoad(load, onEnd, parts, onReady),
      }),
    proofOf: ({ name }) => proofOf(name, parts),
    approvers: () => parts.controller.config.approvers,
    needsSignature: parts.needsSignature,
    mayApproveOwn: parts.mayApproveOwn,
    onOver(run) {
      parts.onOver(run)
      void index?.add(run)
    },
    withoutSecrets,
    emit: noteGuarded(log),
  })
  await guarded.recover(runs)
  if (!('problem' in opened) && stateDir !== undefined)
    index = await openRunIndex(
      runs.flatMap((run) => {
        const recorded = isOver(run) ? run : guarded.get(run.name)
        return recorded?.id === run.id ? [recorded] : []
      }),
      { clock, log, live: parts.live, stateDir, environment: parts.environment },
    ).catch((error: Error) => {
      log.warn({ stateDir, problem: error.message }, 'the index of runs is off: it cannot be read or written')
      return undefined
    })
  parts.controller.killSwitch.onKill(() => {
    const { by, why } = parts.controller.killSwitch.killed ?? { by: 'unknown', why: 'unknown' }
    guarded.killed(by, why)
  })
  const find = async (id: string) => ('find' in journal ? journal.find(id) : undefined)
  return { guarded, earlier: runs, find, plans: index?.plans ?? new PlanStates(), index }
}

async function openJournal({
  stateDir,
  stateProblem,
}: GuardedGatewayParts): Promise<OpenedJournal | { readonly problem: string }> {
  if (stateDir === undefined) return { problem: 'gateway.stateDir is not set' }
  // Requires the lock. Without it, active runs of another process would look like unfinished runs of an ended process.
  if (stateProblem !== undefined)
    return {
      problem: `the store in ${stateDir} could not be opened when the gateway started: ${stateProblem}`,
    }
  try {
    return await RunJournal.open(journalFolder(stateDir), await openKey(stateDir))
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

function noteGuarded(log: Log): (event: GuardedEvent) => void {
  return ({ type, name, state, reason }) =>
    log.warn({ experiment: name, state, reason }, `guarded experiment: ${type}`)
}

/** Returns `context` with an `emit` that also calls `noticed` for signs of trouble, such as an open breaker. */
export function hearing<Context extends PolicyContext>(
  context: Context,
  noticed: (server: string, sign: string) => void,
): Context {
  return {
    ...context,
    emit(event: MeshEvent) {
      context.emit(event)
      const sign = signIn(event)
      if (sign !== undefined) noticed(event.server, sign)
    },
  }
}

function signIn({ type, set, server, tool, detail = {} }: MeshEvent): string | undefined {
  const whose = set === DEFAULT_SET ? '' : ` of ${set}`
  if (type === 'gate') return detail.state === 'open' ? `gate ${server}${whose} open` : undefined
  if (type === 'breaker') {
    return detail.state === 'open' ? `breaker ${server}/${tool ?? '*'}${whose} open` : undefined
  }
  return type === 'ejection' ? `replica ${server}#${String(detail.replica)} ejected` : undefined
}

/** Returns the text of the sign of trouble for a server that is down; undefined in other states. */
export const signOf = ({ name, state, error }: KnownServer): string | undefined =>
  state === 'down' ? `server ${name} down${error === undefined ? '' : ` (${error.reason})`}` : undefined
