import type { Call, Outcome, Service } from '../../../src/mesh/call.ts'
import type { PolicyContext, Scope } from '../../../src/mesh/policy.ts'
import { hedge } from '../../../src/policies/hedge.ts'
import type { BudgetSnapshot } from '../../../src/policies/retry/tries.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { answer, slow } from './scripted.ts'

/** A server whose tries take the times in `ms` and end with `outcomes`. */
export function hedged(
  ms: number[],
  { outcomes = [], config = {}, scope = testScope(), learn }: Options = {},
) {
  const clock = new ManualClock()
  const context = testPolicyContext(clock)
  learn?.(context, scope)
  const tries: Call[] = []
  const at: number[] = []
  const next: Service = (call) => {
    const nth = tries.push(call) - 1
    at.push(clock.now())
    return slow(clock, ms[nth] ?? 0, () => outcomes[nth] ?? answer)(call)
  }
  const service = hedge.build(hedge.schema.parse({ after: 100, ...config }), context, scope)(next)
  const told: Outcome[] = []
  const send = (call: Call) => void service(call).then((outcome) => told.push(outcome))
  const budget = () =>
    context.state.list<{ snapshot(): BudgetSnapshot }>('retry-budget').map(([, state]) => state.snapshot())
  return { clock, send, told, tries, at, budget }
}

interface Options {
  outcomes?: Outcome[]
  config?: object
  scope?: Scope
  learn?: (context: PolicyContext, scope: Scope) => void
}
