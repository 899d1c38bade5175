import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { gatewayError, type PolicyReason } from '../../src/mesh/errors.ts'
import { injectedFaults } from '../../src/mesh/injected.ts'
import { toolCall, type CallParts } from '../support/caller.ts'
import { answered, failed, rpcError } from '../policies/breaker/rig.ts'
import { observed } from './observed.ts'
import { breakerOpen } from '../../src/policies/breaker/state-machine.ts'
import { bulkheadFull } from '../../src/policies/bulkhead.ts'
import { invalidArguments } from '../../src/policies/arguments.ts'
import { replayed } from '../../src/policies/idempotency/stored-outcome.ts'
import { hedges, retries, retryRefused } from '../../src/policies/retry/tries.ts'
import { infeasible } from '../../src/policies/route/feasibility.ts'

interface Logged {
  readonly accessLog?: object
  readonly takesMs?: number
  readonly times?: number
  readonly tool?: string
  readonly parts?: Partial<CallParts>
  /** Adds facts to the call, as layers do. */
  readonly note?: (record: Call['record']) => void
}

/** Returns the log entries of calls with this outcome. */
async function logged(outcome: Outcome, more: Logged = {}): Promise<Record<string, unknown>[]> {
  const { accessLog = {}, takesMs = 0, times = 1, tool = 't', parts = {}, note } = more
  const { service, lines, clock } = observed(
    (call) => {
      note?.(call.record)
      return clock.advance(takesMs).then(() => outcome)
    },
    undefined,
    accessLog,
  )
  for (let i = 0; i < times; i++) {
    const startedAt = clock.now()
    await service(toolCall(tool, { password: 'hunter2' }, { server: 's', startedAt, ...parts }))
  }
  return lines
}

test('a call that got no reply is logged as a warning, with what an operator has to know', async () => {
  const error = gatewayError('upstream_disconnected', 'the connection broke', { sent: true })
  const [line, ...more] = await logged({ kind: 'failed', error })
  assert.deepEqual(more, [])
  const { level, msg, server, method, tool, result, reason, error: said, sent, attempts } = line ?? {}
  assert.deepEqual(
    { level, msg, server, method, tool, result, reason, said, sent, attempts },
    {
      level: 40,
      msg: 'call',
      said: 'the connection broke',
      server: 's',
      method: 'tools/call',
      tool: 't',
      result: 'transport_error',
      reason: 'upstream_disconnected',
      sent: true,
      attempts: 0,
    },
  )
})

test('a rejected call says who rejected it', async () => {
  const error = gatewayError('overloaded', 'bulkhead full (8 of 8)')
  const [line] = await logged({ kind: 'rejected', error, by: 'bulkhead' })
  assert.deepEqual([line?.error, line?.rejectedBy, line?.level], ['bulkhead full (8 of 8)', 'bulkhead', 40])
})

test('ten rejected calls a second are logged by server and reason, and the next line counts the others', async () => {
  const rejected = (reason: PolicyReason): Outcome => ({
    kind: 'rejected',
    error: gatewayError(reason, 'no'),
    by: 'p',
  })
  let outcome = rejected(breakerOpen)
  const { service, lines, clock } = observed(() => Promise.resolve(outcome), undefined, { sample: 1 })
  const send = async (times: number, server: string) => {
    for (let i = 0; i < times; i++) await service(toolCall('t', {}, { server, startedAt: clock.now() }))
    return lines.splice(0).map(({ leftOut }) => leftOut)
  }
  assert.equal((await send(500, 'a')).length, 10)
  assert.equal((await send(500, 'b')).length, 10)
  outcome = rejected(bulkheadFull)
  assert.equal((await send(500, 'a')).length, 10)
  await clock.advance(1_000)
  outcome = rejected(breakerOpen)
  assert.deepEqual(await send(2, 'a'), [490, undefined])
  outcome = answered('tool_error')
  assert.equal((await send(500, 'a')).length, 500)
})

test('a flood of failures is logged fifty times a second for each server and result, and what was left out is counted', async () => {
  let outcome = failed('attempt_timeout')
  const { service, lines, clock } = observed(() => Promise.resolve(outcome), undefined, {})
  const send = async (times: number, server: string) => {
    for (let i = 0; i < times; i++) await service(toolCall('t', {}, { server, startedAt: clock.now() }))
    return lines.splice(0).map(({ leftOut }) => leftOut)
  }
  assert.equal((await send(5_000, 'a')).length, 50)
  assert.equal((await send(5_000, 'b')).length, 50)
  await clock.advance(1_000)
  assert.deepEqual(await send(2, 'a'), [4_950, undefined])
  for (const wrong of [answered('tool_error'), rpcError(-32602)]) {
    outcome = wrong
    assert.equal((await send(5_000, 'a')).length, 50)
  }
})

test('every failure is logged, with any cause, and nothing else by default', async () => {
  const wrong = [
    rpcError(-32603),
    rpcError(-32602),
    answered('tool_error'),
    answered('schema_invalid'),
    failed('attempt_timeout'),
  ]
  for (const outcome of wrong) assert.equal((await logged(outcome)).length, 1)
  const fine = [answered(), answered('correct'), answered('drift'), failed('cancelled')]
  for (const outcome of fine) assert.deepEqual(await logged(outcome), [])
})

test('calls that met a fault and results that are partial are logged', async () => {
  const partial = { source: 'stale', reason: 'x', notice: false } as const
  const [line] = await logged({ ...answered(), partial } as Outcome)
  assert.equal(line?.partial, 'stale')
  const fault = { name: 'slow', type: 'latency', side: 'upstream', attempt: 1 } as const
  const note = (record: Call['record']) => {
    injectedFaults.note(record, [
      { ...fault, status: 'applied' },
      { ...fault, name: 'none', status: 'shadow' },
    ])
  }
  assert.deepEqual((await logged(answered(), { note }))[0]?.faults, ['slow'])
  const shadow = (record: Call['record']) =>
    void injectedFaults.note(record, [{ ...fault, status: 'shadow' }])
  assert.deepEqual(await logged(answered(), { note: shadow }), [])
})

test('the configured share of all other calls is logged, evenly', async () => {
  assert.equal((await logged(answered(), { accessLog: { sample: 0.1 }, times: 100 })).length, 10)
  assert.equal((await logged(answered(), { accessLog: { sample: 1 }, times: 7 })).length, 7)
  assert.equal((await logged(answered(), { accessLog: { sample: 0.3 }, times: 10 })).length, 3)
})

test('slow calls are logged', async () => {
  const accessLog = { slow: '2s' }
  assert.equal((await logged(answered(), { accessLog, takesMs: 2_000 })).length, 1)
  assert.equal((await logged(answered(), { accessLog, takesMs: 1_999 })).length, 0)
})

test('the line tells everything that the record knows of a call', async () => {
  const note = (record: Call['record']) => {
    record.attempts = 3
    retries.note(record, 1)
    hedges.note(record, 1)
    retryRefused.note(record, 'server_budget')
    record.supersededRejections = ['rate_limited']
    record.recoveries = 1
    replayed.note(record, 'joined')
    infeasible.note(record, true)
    invalidArguments.note(record, true)
    record.replica = 2
    record.waitedMs = 40
    record.arm = 'control'
    record.traceId = 'abc'
  }
  const parts = { tenant: 'acme', inbound: { 'x-breakwater-intent': 'tidy up' } }
  const [line] = await logged(answered('correct'), { accessLog: { sample: 1 }, takesMs: 100, note, parts })
  const { level, time, pid, requestId, ...facts } = line ?? {}
  assert.deepEqual([level, typeof time, pid], [30, 'number', undefined])
  assert.match(String(requestId), /^call-\d+$/)
  assert.deepEqual(facts, {
    msg: 'call',
    server: 's',
    method: 'tools/call',
    tool: 't',
    result: 'returned',
    verdict: 'correct',
    durationMs: 100,
    overheadMs: 0,
    waitedMs: 40,
    attempts: 3,
    retries: 1,
    hedges: 1,
    retryRefused: 'server_budget',
    supersededRejections: ['rate_limited'],
    recoveries: 1,
    replayed: 'joined',
    infeasible: true,
    invalidArguments: true,
    replica: 2,
    tenant: 'acme',
    arm: 'control',
    intent: 'tidy up',
    intentSource: 'header',
    traceId: 'abc',
  })
})

test('arguments are never logged, and names are cut', async () => {
  const [line] = await logged(failed(), { tool: 'x'.repeat(10_240) })
  assert.ok(!JSON.stringify(line).includes('hunter2'))
  assert.equal(String(line?.tool).length, 256)
})

test('a call that has an id of ours is logged by the one that its agent gave it', async () => {
  const note = (record: Call['record']) => (record.requestId = 'of-agent')
  const [line] = await logged(answered(), { accessLog: { sample: 1 }, note })
  assert.equal(line?.requestId, 'of-agent')
})
