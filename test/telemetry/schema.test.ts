import assert from 'node:assert/strict'
import { test } from 'node:test'
import { telemetry } from '../../src/telemetry/schema.ts'

test('by default there are metrics and intents, and only failures are logged', () => {
  const { metrics, intents, accessLog } = telemetry.parse(undefined)
  assert.deepEqual(metrics, { maxToolsPerServer: 500, maxAge: 1_000, semanticConventions: false })
  assert.deepEqual(intents, { idle: 30_000, max: 10_000, remember: 600_000 })
  assert.deepEqual(accessLog, { sample: 0 })
})

test('values out of range and unknown keys are refused', () => {
  for (const config of [
    { metrics: { maxToolsPerServer: 0 } },
    { metrics: { maxToolsPerServer: 1.5 } },
    { metrics: { endpoint: 'collector:4318' } },
    { intents: { idle: '10ms' } },
    { intents: { remember: '2d' } },
    { accessLog: { sample: 1.1 } },
    { accessLog: { sample: -0.1 } },
    { accessLog: { slow: 'soon' } },
    { accessLog: { arguments: true } },
  ])
    assert.equal(telemetry.safeParse(config).success, false, JSON.stringify(config))
})
