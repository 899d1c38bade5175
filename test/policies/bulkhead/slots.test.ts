import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Holds } from '../../../src/policies/bulkhead/slots.ts'

test('a slot takes the mean of ended calls, or the mean age of running calls if these are older', () => {
  const holds = new Holds()
  assert.equal(holds.estimateMs(0), 0)
  for (const startedAt of [0, 100, 200]) holds.started(startedAt)
  holds.ended(200, 250)
  assert.equal(holds.usualMs, 50)
  assert.equal(holds.estimateMs(350), 300, 'the two running calls are 350 and 250 ms old')
  holds.left(0)
  assert.equal(holds.estimateMs(350), 250, 'the call that left counts no more')
  holds.left(100)
  assert.equal(holds.estimateMs(10_000), 50, 'without a running call, the mean of ended calls')
})
