import assert from 'node:assert/strict'
import { test } from 'node:test'
import { measuredUnit } from '../../src/experiments/samples.ts'
import type { Call, CallRecord, Outcome, Partial, Service } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { injectedFaults } from '../../src/mesh/injected.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { observed } from './observed.ts'
import { bulkheadFull } from '../../src/policies/bulkhead.ts'
import { retries } from '../../src/policies/retry/tries.ts'

/** A judged reply with these members; `partial` names its missing parts. */
function answered(rest: Readonly<Record<string, unknown>>, partial?: Partial, status = 200): Outcome {
  const value = { jsonrpc: '2.0', id: 1, ...rest }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status },
    verdict: verdictOf(value),
    ...(partial !== undefined && { partial }),
  }
}

const fine = answered({ result: {} })

const TOOL_CALLS = 'breakwater_tool_calls_total'

test('a tool call is counted by what became of it', async () => {
  const outcomes: [Outcome, string][] = [
    [fine, 'returned'],
    [answered({ result: { isError: true } }), 'returned'],
    [answered({ error: { code: -32602 } }), 'caller_error'],
    // A server with an error status has failed.
    [answered({ error: { code: -32602 } }, undefined, 500), 'rpc_error'],
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

test('rejections hidden from the caller are counted like shown rejections', async () => {
  const rig = observed((call) => {
    call.record.supersededRejections = ['breaker_open', 'rate_limited']
    return Promise.resolve({ kind: 'rejected', error: gatewayError(bulkheadFull, 'full'), by: 'bulkhead' })
  })
  await rig.service(toolCall('t', {}, { server: 's' }))
  assert.deepEqual(await rig.exposed('breakwater_rejections_total'), [
    'breakwater_rejections_total{server="s",reason="bulkhead_full"} 1',
    'breakwater_rejections_total{server="s",reason="breaker_open"} 1',
    'breakwater_rejections_total{server="s",reason="rate_limited"} 1',
  ])
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

test('how good the reply was is counted apart, with what became of the call', async () => {
  const { service, exposed } = observed(() => Promise.resolve(answered({ result: { isError: true } })))
  await service(toolCall('t', {}, { server: 's' }))
  const name = 'breakwater_tool_call_verdicts_total'
  assert.deepEqual(await exposed(name), [
    `${name}{server="s",tool="t",outcome="returned",verdict="tool_error"} 1`,
  ])
})

test('all counts of a call belong to the arm of the call', async () => {
  const { service, exposed } = observed((call) => {
    const { record } = call
    record.supersededRejections = ['rate_limited']
    retries.add(record)
    return Promise.resolve(answered({ result: {} }, { source: 'stale', reason: 'it is down', notice: false }))
  })
  const call = toolCall('t', {}, { server: 's' })
  call.record.arm = 'ab/a'
  await service(call)
  const of = ',arm="ab/a"} 1'
  assert.deepEqual(await exposed(TOOL_CALLS), [`${TOOL_CALLS}{server="s",tool="t",result="returned"${of}`])
  for (const [name, labels] of [
    ['upstream_attempts_total', 'server="s",tool="t",outcome="returned",verdict="unchecked"'],
    ['tool_call_duration_seconds_count', 'server="s",tool="t"'],
    ['rejections_total', 'server="s",reason="rate_limited"'],
    ['partial_results_total', 'server="s",source="stale"'],
    ['retries_total', 'server="s",decision="sent"'],
  ] as const)
    assert.deepEqual(await exposed(`breakwater_${name}`), [`breakwater_${name}{${labels}${of}`])
})

test('overhead is the time that a call is neither at a server nor kept waiting', async () => {
  const { service, clock, metrics } = observed((call) =>
    clock.advance(500).then(() => {
      call.record.waitedMs += 30
      return fine
    }),
  )
  const call = toolCall('t', {}, { server: 's' })
  await clock.advance(32)
  await service(call)
  const text = await metrics.registry.metrics()
  assert.match(text, /^breakwater_gateway_overhead_seconds_sum 0\.002$/m)
})

test('a call that waited for another one, or for a fault that shakes its agent, has no overhead to speak of', async () => {
  const fault = { name: 'slow', type: 'latency', side: 'client', attempt: 1, status: 'applied' } as const
  for (const wait of [
    (record: CallRecord) => void (record.hasWaitedElsewhere = true),
    (record: CallRecord) => injectedFaults.note(record, [fault]),
  ]) {
    const { service, metrics } = observed((call) => {
      wait(call.record)
      return Promise.resolve(fine)
    })
    await service(toolCall('t', {}, { server: 's' }))
    assert.match(await metrics.registry.metrics(), /^breakwater_gateway_overhead_seconds_count 0$/m)
  }
})

test('the trace of a call is the exemplar of its bucket', async () => {
  const { service, metrics } = observed((call) => {
    call.record.traceId = '0af7651916cd43dd8448eb211c80319c'
    return Promise.resolve(fine)
  })
  await service(toolCall('t', {}, { server: 's' }))
  const pointed = metrics.toolCallDuration.lines().filter(({ exemplar }) => exemplar !== undefined)
  assert.deepEqual(
    pointed.map(({ exemplar }) => exemplar),
    [
      {
        labelSet: { trace_id: '0af7651916cd43dd8448eb211c80319c' },
        value: 0,
        timestamp: Date.UTC(2026, 0, 1) / 1_000,
      },
    ],
  )
})

test('experiments hear of each tool call in an arm that is over, also where the arm had no room for its unit', async () => {
  const ended: string[] = []
  const experiments = { unit: measuredUnit, end: ({ arm }: CallRecord) => void ended.push(arm) }
  const { service } = observed(() => Promise.resolve(fine), undefined, {}, undefined, undefined, {
    experiments,
  })
  for (const arm of ['', 'one/control']) {
    const call = toolCall('t', {}, { server: 's' })
    call.record.arm = arm
    assert.equal(measuredUnit.of(call.record), undefined)
    await service(call)
  }
  assert.deepEqual(ended, ['one/control'])
})
