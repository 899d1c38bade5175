import type { Outcome } from '../../../src/mesh/call.ts'
import { Intents } from '../../../src/telemetry/intents.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { answered } from '../../policies/breaker/rig.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { exposedBy } from '../observed.ts'

const modern = new TestCaller({ era: 'modern' })

/** Tasks of agents on virtual time, with their counts. */
export function intentsRig() {
  const clock = new ManualClock()
  const metrics = createMetrics()
  /** Reports to experiments: task, arm and outcome. */
  const heard: string[] = []
  const intents = new Intents({
    clock,
    metrics,
    onOutcome: ({ id }, arm, outcome) => heard.push(`${id} ${arm} ${outcome}`),
  })

  /** Begins a call. Returns a function that ends the call. The task's name is in a header, or in `_meta`. */
  function begin(name: string | undefined, { tenant = 'a', arm = '', inMeta = false } = {}) {
    const inbound = name === undefined || inMeta ? {} : { 'x-breakwater-intent': name }
    const _meta = inMeta ? { 'dev.breakwater/intent': name } : {}
    const call = toolCall('t', {}, { caller: modern, tenant, inbound, params: { name: 't', _meta } })
    call.record.arm = arm
    intents.begin(call)
    return (outcome: Outcome = answered()) => intents.end(call.record, outcome)
  }

  return { clock, metrics, intents, heard, begin, exposed: (name: string) => exposedBy(metrics, name) }
}
