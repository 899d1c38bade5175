import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { observe } from '../../src/telemetry/observe.ts'
import { toolCall } from '../support/caller.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** What is logged about a call with this outcome. */
async function logged(outcome: Outcome, tool = 't'): Promise<Record<string, unknown>[]> {
  const { log, lines } = recordedLog()
  const layer = observe({
    clock: new ManualClock(),
    metrics: createMetrics(),
    log,
    isListed: () => true,
    account: () => [],
  })
  await layer(() => Promise.resolve(outcome))(toolCall(tool, { password: 'hunter2' }, { server: 's' }))
  return lines
}

test('a call that got no reply is logged, with what an operator has to know', async () => {
  const error = gatewayError('upstream_disconnected', 'the connection broke', { sent: true })
  const [line, ...more] = await logged({ kind: 'failed', error })
  assert.deepEqual(more, [])
  assert.equal(line?.level, 40)
  assert.equal(line?.msg, 'the connection broke')
  const { server, method, tool, reason, sent, attempts } = line ?? {}
  assert.deepEqual(
    [server, method, tool, reason, sent, attempts],
    ['s', 'tools/call', 't', 'upstream_disconnected', true, 0],
  )
  assert.ok(!JSON.stringify(line).includes('hunter2'))
})

test('a rejected call is logged', async () => {
  const error = gatewayError('overloaded', 'bulkhead full (8 of 8)')
  assert.equal((await logged({ kind: 'rejected', error, by: 'bulkhead' }))[0]?.msg, 'bulkhead full (8 of 8)')
})

test('a reply is not logged, and neither is a call that its caller gave up', async () => {
  const result = { text: '{}', value: {}, status: 200 }
  for (const verdict of ['unchecked', 'tool_error', 'rpc_error'] as const) {
    assert.deepEqual(await logged({ kind: 'answered', result, verdict }), [])
  }
  assert.deepEqual(await logged({ kind: 'failed', error: gatewayError('cancelled', 'x') }), [])
})
