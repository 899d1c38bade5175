import assert from 'node:assert/strict'
import { test } from 'node:test'
import { faults } from '../../src/chaos/faults/index.ts'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'

const loaded = await loadConfig('config/chaos.yaml', {})
assert.ok(loaded.ok, loaded.ok ? '' : loaded.errors.map(formatIssue).join('\n'))
const { chaos, gateway } = loaded.config

test('chaos.yaml has one fault of every kind that there is', () => {
  const shown = chaos.faults.map(({ type }) => type)
  assert.deepEqual([...shown].sort(), Object.keys(faults).sort())
})

test('chaos.yaml arms nothing, where something could be armed', () => {
  assert.equal(chaos.enabled, false)
  assert.equal(gateway.environment, 'staging')
})

test('all faults of chaos.yaml are over in time, and none may write', () => {
  for (const { name, ttl, allowWrites } of chaos.faults) assert.ok(ttl <= 600_000 && !allowWrites, name)
})
