import type { Seed } from '../../mesh/keyed-random.ts'
import { newFaultCounts, type FaultCounts } from '../accounting/counts.ts'
import type { ArmedFault } from '../firing/armed-fault.ts'
import type { Fault } from '../plan/common.ts'
import type { ChaosConfig } from '../plan/schema.ts'
import type { ChaosRun } from './chaos-run.ts'

export type State = 'disarmed' | 'armed' | 'killed'

/** A fault in the admin API. */
export interface FaultStatus extends FaultCounts {
  readonly name: string
  /** Id of a fault made by the runtime API; undefined for every other fault. */
  readonly id: string | undefined
  readonly type: string
  readonly side: string
  readonly target: string
  readonly rate: number
  readonly armed: boolean
  /** Time until the fault ends, in milliseconds; 0 when the fault is not armed. */
  readonly remainingMs: number
  readonly concurrent: number
  /** Servers that the fault does not hit, because their tool lists are not known yet. */
  readonly awaitedLists: readonly string[]
  readonly config: Fault
  /** The same counts for the gateway's own requests to servers. No other count includes these requests. */
  readonly discovery: FaultCounts
}

export interface Status {
  readonly state: State
  /** Start of this state, in milliseconds since the Unix epoch. */
  readonly since: number
  readonly by: string
  readonly why: string
  readonly environment: string | undefined
  /** Why the plan cannot be armed now; undefined when it can be armed. */
  readonly refusal: string | undefined
  readonly enabled: boolean
  readonly mode: 'act' | 'shadow'
  readonly seed: Seed
  /** Longest time any fault may be armed. */
  readonly maxTtl: number
  readonly faults: readonly FaultStatus[]
  /** Author of the plan: `config`, or the author of the `PUT` request that replaced the plan. */
  readonly plannedBy: string
  readonly engineErrors: number
  readonly killed: boolean
  /** Why the kill state cannot be recorded for the next process; undefined when it can be recorded. */
  readonly killRecordProblem: string | undefined
  /** Time until the run ends without renewal; undefined when no renewal is needed. */
  readonly leaseRemainingMs: number | undefined
}

export interface StatusParts {
  readonly config: ChaosConfig
  readonly last: Pick<Status, 'since' | 'by' | 'why'>
  readonly plannedBy: string
  readonly environment: string | undefined
  readonly refusal: string | undefined
  readonly killed: boolean
  readonly killRecordProblem: string | undefined
  readonly run: ChaosRun
  readonly engineErrors: number
  readonly awaitsList: (server: string) => boolean
  /** The present time on the monotonic clock, in milliseconds. */
  readonly now: number
}

/** Returns a snapshot: the plan's faults, armed or not, and the armed runtime API faults. */
export function statusOf(parts: StatusParts): Status {
  const { config, last, plannedBy, killed, killRecordProblem, run, environment, refusal, engineErrors } =
    parts
  const armed = run.armed.list()
  const present = new Set(armed)
  const planned = config.faults.map((fault) => {
    const latest = run.latest(fault.name)
    return faultStatus(fault, latest, latest !== undefined && present.has(latest), parts)
  })
  const others = armed.filter(({ id }) => id !== undefined)
  return {
    state: killed ? 'killed' : armed.length > 0 ? 'armed' : 'disarmed',
    ...last,
    environment,
    refusal,
    enabled: config.enabled,
    mode: config.mode,
    seed: config.seed,
    maxTtl: config.maxTtl,
    faults: [...planned, ...others.map((other) => faultStatus(other.fault, other, true, parts))],
    plannedBy,
    engineErrors,
    killed,
    killRecordProblem,
    leaseRemainingMs: run.lease.remainingMs,
  }
}

/** Returns the status of the latest fault with this name, armed or ended; undefined for an unknown name. */
export function latestStatus(
  name: string,
  parts: Pick<StatusParts, 'run' | 'now' | 'awaitsList'>,
): FaultStatus | undefined {
  const latest = parts.run.latest(name)
  return latest && faultStatus(latest.fault, latest, latest === parts.run.armed.get(name), parts)
}

/** Returns the status of a fault. `run`: the fault as armed now, or as armed last. */
function faultStatus(
  fault: Fault,
  run: ArmedFault | undefined,
  armed: boolean,
  { now, awaitsList }: Pick<StatusParts, 'now' | 'awaitsList'>,
): FaultStatus {
  const { name, type, side, rate, match } = fault
  return {
    name,
    id: run?.id,
    type,
    side,
    target: `${match?.server ?? '*'}/${match?.tool ?? '*'}`,
    rate,
    armed,
    remainingMs: armed && run !== undefined ? Math.max(0, run.endsAt - now) : 0,
    concurrent: run?.concurrent ?? 0,
    awaitedLists: armed ? [...(run?.awaited ?? [])].filter(awaitsList) : [],
    config: fault,
    ...(run?.counts ?? newFaultCounts()),
    discovery: run?.discovery ?? newFaultCounts(),
  }
}
