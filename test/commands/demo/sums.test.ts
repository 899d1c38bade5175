import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FaultStatus } from '../../../src/chaos/control/status.ts'
import { newFaultCounts } from '../../../src/chaos/accounting/counts.ts'
import { newTally } from '../../../src/load/shop-agents.ts'
import { between, gatesIn, readingOf, totalOf } from '../../../src/commands/compare/sim/live/reading.ts'
import { samplesIn } from '../../../src/commands/shared/samples.ts'
import { check, type Known } from '../../../src/commands/compare/sim/live/sums.ts'

const text = `# HELP breakwater_tool_calls_total Tool calls
# TYPE breakwater_tool_calls_total counter
breakwater_tool_calls_total{server="docs",tool="read_doc",result="returned"} 5
breakwater_tool_calls_total{server="docs",tool="read_doc",result="timeout"} 1
breakwater_tool_call_verdicts_total{server="docs",tool="read_doc",outcome="returned",verdict="correct"} 4
breakwater_tool_call_verdicts_total{server="docs",tool="read_doc",outcome="returned",verdict="tool_error"} 1
breakwater_tool_call_verdicts_total{server="docs",tool="read_doc",outcome="timeout"} 1
breakwater_upstream_attempts_total{server="docs",tool="read_doc",outcome="returned",verdict="correct"} 4
breakwater_upstream_attempts_total{server="docs",tool="read_doc",outcome="cancelled"} 2
breakwater_upstream_attempts_total{server="docs",tool="read_doc",outcome="timeout"} 4
breakwater_intent_outcomes_total{outcome="failed",calls="failed",source="meta"} 1
breakwater_faults_injected_total{fault="slow",type="conn.latency"} 3
breakwater_fault_outcomes_total{fault="slow",fate="masked"} 2
breakwater_fault_outcomes_total{fault="slow",fate="not_reached"} 1
breakwater_gate_state{server="docs",state="open"} 1
breakwater_gate_state{server="docs",state="closed"} 0
breakwater_gate_state{server="docs",state="half_open"} 0
`

const reading = readingOf(samplesIn(text))

test('the sums of agents and servers are read from the metrics', () => {
  assert.equal(reading.calls, 6)
  assert.equal(reading.answered, 4)
  assert.deepEqual(reading.ofAgents, { eligible: 6, returned: 5, good: 4, unchecked: 0 })
  assert.deepEqual(reading.ofServers, { eligible: 8, returned: 4, good: 4, unchecked: 0 })
  assert.deepEqual([reading.succeeded, reading.failed], [0, 1])
  assert.deepEqual(totalOf(reading), {
    injected: 3,
    masked: 2,
    delayed: 0,
    surfaced: 0,
    escaped: 0,
    not_reached: 1,
  })
  assert.deepEqual(gatesIn(samplesIn(text)), new Map([['docs', 'open']]))
})

test('a reading compared with itself shows no calls', () => {
  const nothing = between(reading, reading)
  assert.deepEqual([nothing.calls, nothing.answered, nothing.failed, totalOf(nothing).injected], [0, 0, 0, 0])
})

const slow = { ...newFaultCounts(), name: 'slow', injected: 3, hits: 2, notReached: 1, masked: 2 }
const fault = { ...slow, discovery: newFaultCounts() } as unknown as FaultStatus
const tally = { ...newTally(), calls: 6, right: 4, errors: 2, failed: 1 }

const known: Known = {
  reading,
  phases: [{ name: 'during', reading, tally }],
  tally,
  faults: [fault],
  acknowledged: ['task-1'],
  placed: new Map([['task-1', 1]]),
}

test('a run whose numbers agree adds up', () => {
  const { checked, wrong } = check(known)
  assert.deepEqual(wrong, [])
  assert.ok(checked > 10)
})

const wrongs: Readonly<Record<string, { readonly with: Partial<Known>; readonly says: RegExp }>> = {
  'a call that the gateway has not counted': {
    with: { tally: { ...tally, calls: 7, right: 5 } },
    says: /^calls: 6 instead of 7$/,
  },
  'an error that the gateway took for an answer': {
    with: { tally: { ...tally, right: 3, errors: 3 } },
    says: /^calls with an error: 2 instead of 3$/,
  },
  'a wrong answer that no fault has made': {
    with: { tally: { ...tally, right: 3, wrong: 1 } },
    says: /^escaped faults: 0 instead of 1$/,
  },
  'a task that nobody was told of': {
    with: { tally: { ...tally, succeeded: 1 } },
    says: /^tasks that succeeded: 0 instead of 1$/,
  },
  'a fault of which nobody knows what became': {
    with: { faults: [{ ...fault, injected: 4 }] },
    says: /^fates of slow: 3 instead of 4$/,
  },
  'a fault while there should be none': {
    with: { phases: [{ name: 'after', reading, tally }] },
    says: /^faults injected after: 3 instead of 0$/,
  },
  'a phase that counts otherwise': {
    with: { phases: [{ name: 'during', reading, tally: { ...tally, failed: 2 } }] },
    says: /^tasks that failed during: 1 instead of 2$/,
  },
  'a write that ran twice': {
    with: { placed: new Map([['task-1', 2]]) },
    says: /^orders placed twice: 1 instead of 0$/,
  },
  'a write that was acknowledged and never ran': {
    with: { placed: new Map() },
    says: /^orders acknowledged but not placed: 1 instead of 0$/,
  },
}

for (const [what, { with: changed, says }] of Object.entries(wrongs)) {
  test(`${what} is reported`, () => {
    const { wrong } = check({ ...known, ...changed })
    assert.ok(
      wrong.some((sentence) => says.test(sentence)),
      wrong.join('\n'),
    )
  })
}
