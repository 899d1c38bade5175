import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import type { Kit, Scope } from '../../../src/mesh/policy.ts'
import { hedge } from '../../../src/policies/hedge.ts'
import type { BudgetSnapshot } from '../../../src/policies/state/retry-budget.ts'
import { testKit, testScope } from '../../support/kit.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { answer, slow } from './scripted.ts'

/** A server whose tries take as long as `ms` says, and end as `outcomes` say. */
export function hedged(
  ms: number[],
  { outcomes = [], config = {}, scope = testScope(), learn }: Options = {},
) {
  const clock = new ManualClock()
  const kit = testKit(clock)
  learn?.(kit, scope)
  const tries: Call[] = []
  const at: number[] = []
  const next: Service = (call) => {
    const nth = tries.push(call) - 1
    at.push(clock.now())
    return slow(clock, ms[nth] ?? 0, () => outcomes[nth] ?? answer)(call)
  }
  const service = hedge.build(hedge.schema.parse({ after: 100, ...config }), kit, scope)(next)
  const told: Outcome[] = []
  const send = (call: Call) => void service(call).then((outcome) => told.push(outcome))
  const budget = () =>
    kit.state.list<{ snapshot(): BudgetSnapshot }>('retry-budget').map(([, state]) => state.snapshot())
  return { clock, send, told, tries, at, budget }
}

interface Options {
  outcomes?: Outcome[]
  config?: object
  scope?: Scope
  learn?: (kit: Kit, scope: Scope) => void
}
