import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { observeAttempt, upstreamMsOf } from '../../src/telemetry/observe.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { answered, failed, rpcError } from '../policies/breaker/rig.ts'
import { concurrencyLimited } from '../../src/policies/adaptive-concurrency.ts'
import { noRecorder } from '../support/no-recorder.ts'

const NAME = 'breakwater_upstream_attempts_total'

/** The layer over a server with these answers in turn, and its counter, line by line. */
function observed(outcomes: readonly Outcome[]) {
  const metrics = createMetrics()
  const left = [...outcomes]
  const clock = new ManualClock()
  const isListed = (_: string, tool: string) => tool === 'known'
  const layer = observeAttempt({ clock, metrics, isListed, tracing: undefined, recorder: noRecorder })
  const service = layer(() => Promise.resolve(left.shift() as Outcome))
  const all = async () => {
    const text = await metrics.registry.metrics()
    return text.split('\n').filter((line) => line.startsWith(`${NAME}{`))
  }
  const exposed = async () => (await all()).filter((line) => !line.endsWith(' 0'))
  return { service, all, exposed }
}

test('every attempt is counted, with its outcome and verdict', async () => {
  const expected: readonly [Outcome, string, string][] = [
    [answered('correct'), 'returned', 'correct'],
    [answered('unchecked'), 'returned', 'unchecked'],
    [answered('schema_invalid'), 'returned', 'schema_invalid'],
    [answered('tool_error'), 'returned', 'tool_error'],
    [rpcError(-32603), 'rpc_error', 'rpc_error'],
    [rpcError(-32602), 'caller_error', 'rpc_error'],
    [failed('attempt_timeout'), 'timeout', ''],
    [failed('deadline_exceeded'), 'timeout', ''],
    [failed('upstream_disconnected'), 'transport_error', ''],
    [failed('cancelled'), 'cancelled', ''],
  ]
  for (const [outcome, became, verdict] of expected) {
    const { service, exposed } = observed([outcome])
    assert.equal(await service(toolCall('known', {}, { server: 's' })), outcome)
    assert.deepEqual(await exposed(), [
      `${NAME}{server="s",tool="known",outcome="${became}"${verdict && `,verdict="${verdict}"`}} 1`,
    ])
  }
})

test("an error of the tool about arguments that break its schema is its caller's", async () => {
  const { service, exposed } = observed([answered('tool_error'), answered('schema_invalid')])
  for (let n = 0; n < 2; n++) {
    const call = toolCall('known', {}, { server: 's' })
    call.record.isInvalid = true
    await service(call)
  }
  assert.deepEqual(await exposed(), [
    `${NAME}{server="s",tool="known",outcome="returned",verdict="schema_invalid"} 1`,
    `${NAME}{server="s",tool="known",outcome="caller_error",verdict="tool_error"} 1`,
  ])
})

test('attempts of one call count each, and those of tools that no catalog lists share a series', async () => {
  const { service, exposed } = observed([failed(), failed(), answered(), answered()])
  for (const tool of ['known', 'known', 'made up', 'made up too'])
    await service(toolCall(tool, {}, { server: 's' }))
  assert.deepEqual(await exposed(), [
    `${NAME}{server="s",tool="known",outcome="transport_error"} 2`,
    `${NAME}{server="s",tool="_other",outcome="returned",verdict="unchecked"} 2`,
  ])
})

test('failures of a tool are at 0 before there is any, or to Prometheus the first would not have happened', async () => {
  const { service, all } = observed([answered('correct'), failed()])
  await service(toolCall('known', {}, { server: 's' }))
  const before = await all()
  await service(toolCall('known', {}, { server: 's' }))
  const changed = (await all()).filter((line) => !before.includes(line))
  const failures = `${NAME}{server="s",tool="known",outcome="transport_error"}`
  assert.deepEqual(changed, [`${failures} 1`])
  assert.ok(before.includes(`${failures} 0`))
  assert.equal(before.length, 8)
})

test('requests that are no tool calls pass without being counted', async () => {
  const outcome = answered()
  const { service, exposed } = observed([outcome])
  assert.equal(await service(newCall({ method: 'tools/list' })), outcome)
  assert.deepEqual(await exposed(), [])
})

test('a rejection by an inner policy is no success', async () => {
  const error = gatewayError(concurrencyLimited, 'x')
  const { service, exposed } = observed([{ kind: 'rejected', error, by: 'x' }])
  await service(toolCall('known', {}, { server: 's' }))
  assert.match((await exposed())[0] ?? '', /outcome="transport_error"/)
})

test('the time of tries is added up in the record, and tries at the same time count once', async () => {
  const clock = new ManualClock()
  const ends: (() => void)[] = []
  const layer = observeAttempt({
    clock,
    metrics: createMetrics(),
    isListed: () => true,
    tracing: undefined,
    recorder: noRecorder,
  })
  const service = layer(() => new Promise((resolve) => ends.push(() => resolve(answered()))))
  const call = toolCall('known')
  const first = service(call)
  await clock.advance(100)
  const hedge = service(call)
  await clock.advance(50)
  ends[0]?.()
  await first
  assert.equal(upstreamMsOf(call.record, clock.now()), 150)
  await clock.advance(25)
  assert.equal(upstreamMsOf(call.record, clock.now()), 175)
  ends[1]?.()
  await hedge
  await clock.advance(1_000)
  const retry = service(call)
  await clock.advance(7)
  ends[2]?.()
  await retry
  assert.equal(upstreamMsOf(call.record, clock.now()), 182)
})
