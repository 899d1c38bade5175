import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FaultNames } from '../../../src/telemetry/metrics/fault-names.ts'

test('a fault keeps its label, and further faults than 2,000 share one', () => {
  const names = new FaultNames()
  for (let n = 1; n <= 2_000; n++) assert.equal(names.labelOf(`fault-${n}`), `fault-${n}`)
  assert.equal(names.labelOf('fault-2001'), '_other')
  assert.equal(names.labelOf('fault-7'), 'fault-7')
})
