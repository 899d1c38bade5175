import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { answered, failed, rpcError } from '../policies/breaker/rig.ts'
import { TestCaller, toolCall } from '../support/caller.ts'
import { observed } from './observed.ts'
import { bulkheadFull } from '../../src/policies/bulkhead.ts'

/** An indicator: numerator and denominator, both whole numbers. */
type Ratio = readonly [number, number]

const product = ([a, b]: Ratio, [c, d]: Ratio): Ratio => [a * c, b * d]
const equal = ([a, b]: Ratio, [c, d]: Ratio) => a * d === c * b

interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

function samples(text: string, name: string): Sample[] {
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`))
  return lines.map((line) => ({
    labels: Object.fromEntries(
      [...line.matchAll(/([a-z_]+)="([^"]*)"/g)].map(([, label, value]) => [label, value]),
    ) as Record<string, string>,
    value: Number(line.slice(line.lastIndexOf(' '))),
  }))
}

const count = (all: readonly Sample[], holds: (labels: Sample['labels']) => boolean) =>
  all.filter(({ labels }) => holds(labels)).reduce((sum, { value }) => sum + value, 0)

/** Returns the indicators, as the recording rules compute indicators from counters. */
function indicators(text: string, name: string) {
  const all = samples(text, name)
  const blameless = new Set(['caller_error', 'cancelled', 'rejected'])
  const eligible = count(all, ({ outcome }) => !blameless.has(outcome!))
  const wrong = new Set(['tool_error', 'schema_invalid', 'json_invalid', 'partial_silent'])
  const returned = count(all, ({ outcome }) => outcome === 'returned')
  const good = count(all, ({ outcome, verdict }) => outcome === 'returned' && !wrong.has(verdict!))
  const asked = count(all, ({ outcome }) => outcome !== 'caller_error' && outcome !== 'cancelled')
  return {
    availability: [returned, eligible] as const,
    correctness: [good, returned] as const,
    eta: [good, eligible] as const,
    success: [good, asked] as const,
  }
}

const rejected: Outcome = { kind: 'rejected', error: gatewayError(bulkheadFull, 'full'), by: 'bulkhead' }

/** Three tasks, and a call without a task: the outcomes of each call. */
const script: readonly (readonly [task: string | undefined, outcomes: readonly Outcome[]])[] = [
  ['first', [answered('correct'), answered('correct'), answered('schema_invalid'), rpcError(-32602)]],
  ['second', [answered('correct'), answered('unchecked')]],
  [
    'third',
    [failed('attempt_timeout'), rejected, answered('correct'), failed('cancelled'), rpcError(-32603)],
  ],
  [undefined, [answered('partial_silent')]],
]

async function run() {
  const outcomes = new Map<Call['record'], Outcome>()
  const rig = observed((call) => Promise.resolve(outcomes.get(call.record)!))
  const caller = new TestCaller({ era: 'modern' })
  for (const [task, all] of script)
    for (const outcome of all) {
      const inbound = task === undefined ? {} : { 'x-breakwater-intent': task }
      const call = toolCall('t', {}, { server: 's', caller, inbound, startedAt: rig.clock.now() })
      outcomes.set(call.record, outcome)
      await rig.service(call)
    }
  await rig.clock.advance(60_000)
  return rig.metrics.registry.metrics()
}

test('availability, correctness, ETA and success rate of calls are exactly those of the run', async () => {
  const { availability, correctness, eta, success } = indicators(
    await run(),
    'breakwater_tool_call_verdicts_total',
  )
  assert.deepEqual([...availability], [7, 9])
  assert.deepEqual([...correctness], [5, 7])
  assert.deepEqual([...eta], [5, 9])
  assert.deepEqual([...success], [5, 10])
  assert.ok(equal(product(availability, correctness), eta))
})

test('indicators of attempts leave out only errors and cancellations of callers', async () => {
  const { availability, correctness, eta } = indicators(await run(), 'breakwater_upstream_attempts_total')
  // The rejecting layer stands under the layer that counts attempts here, so a rejected call counts as failed.
  assert.deepEqual(
    [[...availability], [...correctness], [...eta]],
    [
      [7, 10],
      [5, 7],
      [5, 10],
    ],
  )
  assert.ok(equal(product(availability, correctness), eta))
})

test('calls per task, share of tasks that were hit, and share of calls of no task are exactly those of the run', async () => {
  const text = await run()
  const intents = samples(text, 'breakwater_intents_total')
  const hit = count(intents, ({ outcome }) => outcome === 'failed')
  assert.deepEqual([hit, count(intents, () => true)], [2, 3])
  const [calls] = samples(text, 'breakwater_intent_tool_calls_sum')
  const [tasks] = samples(text, 'breakwater_intent_tool_calls_count')
  assert.deepEqual([calls?.value, tasks?.value, calls?.labels.source], [11, 3, 'header'])
  const all = count(samples(text, 'breakwater_tool_calls_total'), () => true)
  assert.match(text, /^breakwater_intents_unattributed_total 1$/m)
  assert.equal(all, 12)
})
