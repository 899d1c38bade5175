import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { observe } from '../../src/telemetry/observe.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** A reply with this rest, judged. */
function answered(rest: Readonly<Record<string, unknown>>): Outcome {
  const value = { jsonrpc: '2.0', id: 1, ...rest }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 200 },
    verdict: verdictOf(value),
  }
}

const fine = answered({ result: {} })

/** The outermost layer around a service, and what it tells. */
function observed(next: Service, isListed: (server: string, tool: string) => boolean = () => true) {
  const clock = new ManualClock()
  const metrics = createMetrics()
  const { log, lines } = recordedLog()
  return {
    clock,
    metrics,
    lines,
    service: observe({ clock, metrics, log, isListed, account: () => [] })(next),
    /** The lines of the exposition that name a metric and have a value other than 0. */
    async exposed(name: string): Promise<string[]> {
      const text = await metrics.registry.metrics()
      return text.split('\n').filter((line) => line.startsWith(`${name}{`) && !line.endsWith(' 0'))
    },
  }
}

const TOOL_CALLS = 'breakwater_tool_calls_total'

test('a tool call is counted by what became of it', async () => {
  const outcomes: [Outcome, string][] = [
    [fine, 'returned'],
    [answered({ result: { isError: true } }), 'returned'],
    [answered({ error: { code: -32602 } }), 'caller_error'],
    [answered({ error: { code: -32603 } }), 'rpc_error'],
    [{ kind: 'failed', error: gatewayError('attempt_timeout', 'x') }, 'timeout'],
    [{ kind: 'failed', error: gatewayError('upstream_disconnected', 'x') }, 'transport_error'],
    [{ kind: 'failed', error: gatewayError('cancelled', 'x') }, 'cancelled'],
    [{ kind: 'rejected', error: gatewayError('overloaded', 'x'), by: 'bulkhead' }, 'rejected'],
  ]
  for (const [outcome, result] of outcomes) {
    const { service, exposed } = observed(() => Promise.resolve(outcome))
    assert.equal(await service(toolCall('t', {}, { server: 's' })), outcome)
    assert.deepEqual(await exposed(TOOL_CALLS), [`${TOOL_CALLS}{server="s",tool="t",result="${result}"} 1`])
  }
})

test('tools that no catalog lists share one series, so that callers cannot make series up', async () => {
  const { service, exposed } = observed(
    () => Promise.resolve(fine),
    (_, tool) => tool === 'known',
  )
  for (const name of ['known', 'made up 1', 'made up 2', ''])
    await service(toolCall(name, {}, { server: 's' }))
  assert.deepEqual(await exposed(TOOL_CALLS), [
    `${TOOL_CALLS}{server="s",tool="known",result="returned"} 1`,
    `${TOOL_CALLS}{server="s",tool="_other",result="returned"} 3`,
  ])
})

test('the duration counts from the arrival of the call, in seconds', async () => {
  const { service, clock, exposed } = observed(() => Promise.resolve(fine))
  const call = toolCall('t', {}, { server: 's' })
  await clock.advance(250)
  await service(call)
  const [sum] = await exposed('breakwater_tool_call_duration_seconds_sum')
  assert.equal(sum, 'breakwater_tool_call_duration_seconds_sum{server="s",tool="t"} 0.25')
})

test('other requests are counted apart, without a tool', async () => {
  const { service, exposed } = observed(() => Promise.resolve(fine))
  await service(newCall({ method: 'resources/read', server: 's' }))
  assert.deepEqual(await exposed('breakwater_requests_total'), [
    'breakwater_requests_total{server="s",result="returned"} 1',
  ])
  assert.deepEqual(await exposed(TOOL_CALLS), [])
})

test('requests under way are counted until they end, however they end', async () => {
  const ends: ((outcome: Outcome | Error) => void)[] = []
  const { service, exposed, metrics } = observed(
    () =>
      new Promise((resolve, reject) =>
        ends.push((end) => (end instanceof Error ? reject(end) : resolve(end))),
      ),
  )
  const calls = ['a', 'a', 'b'].map((server) => service(toolCall('t', {}, { server })))
  const inFlight = () => exposed('breakwater_inflight')
  assert.deepEqual(await inFlight(), [
    'breakwater_inflight{server="a"} 2',
    'breakwater_inflight{server="b"} 1',
  ])
  ends[0]?.(fine)
  ends[1]?.(new Error('defect'))
  await Promise.all(calls.slice(0, 2))
  assert.deepEqual(await inFlight(), ['breakwater_inflight{server="b"} 1'])
  ends[2]?.(fine)
  await calls[2]
  assert.ok([...metrics.inFlight.values()].every((count) => count === 0))
})

test('sessions that had to be opened again are counted', async () => {
  const recover = (call: Call) => {
    call.record.recoveries = 2
    return Promise.resolve(fine)
  }
  const { service, exposed } = observed(recover)
  await service(toolCall('t', {}, { server: 's' }))
  const name = 'breakwater_session_recoveries_total'
  assert.deepEqual(await exposed(name), [`${name}{server="s"} 2`])
})

test('a defect becomes an error of ours, which tells the caller nothing and the log everything', async () => {
  const defects: Service[] = [
    () => Promise.reject(new Error('secret at /home/x')),
    () => {
      throw new Error('secret at /home/x')
    },
  ]
  for (const defect of defects) {
    const { service, lines, exposed } = observed(defect)
    const call = toolCall('t', {}, { server: 's' })
    call.record.sent = true
    const outcome = await service(call)
    assert.deepEqual(outcome, {
      kind: 'failed',
      error: gatewayError('internal', 'internal error', { sent: true }),
    })
    assert.match(JSON.stringify(lines), /secret at \/home\/x/)
    assert.match(JSON.stringify(lines), /observe\.test/)
    assert.equal((await exposed(TOOL_CALLS)).length, 1)
    assert.deepEqual(await exposed('breakwater_inflight'), [])
  }
})
