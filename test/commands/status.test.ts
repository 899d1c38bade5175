import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callsIn } from '../../src/commands/status.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'

test('a call has failed that brought no reply, an error, or a reply that is known to be wrong', async () => {
  const metrics = createMetrics()
  const counted = (...ends: readonly (readonly [result: string, verdict: string])[]) => {
    for (const [result, verdict] of ends)
      metrics.tools.of('s', 't', () => true).countCall(result, verdict, '', 0.1)
  }
  counted(['returned', 'correct'], ['returned', 'unchecked'], ['returned', 'drift'])
  counted(['cancelled', ''], ['caller_error', 'rpc_error'], ['caller_error', 'tool_error'])
  assert.deepEqual(callsIn(await metrics.registry.metrics()), { s: { all: 6, failed: 0 } })
  counted(['returned', 'tool_error'], ['returned', 'schema_invalid'], ['returned', 'partial_silent'])
  counted(['rpc_error', 'rpc_error'], ['timeout', ''], ['transport_error', ''], ['rejected', ''])
  assert.deepEqual(callsIn(await metrics.registry.metrics()), { s: { all: 13, failed: 7 } })
})
