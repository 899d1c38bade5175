import type { Fault } from '../chaos/plan/common.ts'
import type { Call, Outcome } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import type { Seed } from '../mesh/keyed-random.ts'
import { SimulatedGateway } from './gateway.ts'
import type { PolicyChoice } from './policy-choices.ts'
import type { ServerModel } from './servers.ts'
import { newTally, runTasks, type Tally, type Workload } from './tasks.ts'
import { VirtualClock } from './virtual-clock.ts'

export interface Run {
  /** Seed of servers, policies and faults. */
  readonly seed: Seed
  readonly servers: Readonly<Record<string, ServerModel>>
  readonly choice: PolicyChoice
  /** Faults of the run; they are armed after the schemas of all tools are compiled. */
  readonly faults: readonly Fault[]
  readonly workload: Workload
  /** Called when a call is over, `ms` after the start. */
  readonly onCall?: (call: Call, outcome: Outcome, ms: Millis) => void
}

/** Runs all tasks on a new clock with a new gateway. Resolves to the counts. */
export const simulate = async (run: Run): Promise<Tally> => (await simulated(run)).tally

/** Runs all tasks like `simulate`. Also resolves to the gateway's final state and the duration in virtual time. */
export async function simulated({ seed, servers, choice, faults, workload, onCall }: Run): Promise<{
  readonly tally: Tally
  readonly gateway: SimulatedGateway
  readonly tookMs: Millis
}> {
  const clock = new VirtualClock()
  const { policies, set } = choice
  const gateway = new SimulatedGateway({
    clock,
    seed,
    servers,
    policies,
    ...(set !== undefined && { set }),
    ...(onCall !== undefined && {
      onCall: (call, outcome) => onCall(call, outcome, clock.now() - call.record.startedAt),
    }),
  })
  const tally = newTally()
  await clock.run(gateway.prepare())
  gateway.arm({ seed, faults })
  await clock.run(runTasks(gateway, clock, workload, tally))
  return { tally, gateway, tookMs: clock.now() }
}
