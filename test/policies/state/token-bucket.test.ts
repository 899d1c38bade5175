import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TokenBucket } from '../../../src/policies/rate-limit/limit.ts'

test('a bucket is full at first, and then tells the exact wait for the next token', () => {
  const bucket = new TokenBucket({ calls: 10, perMs: 1_000 }, 3)
  assert.deepEqual([bucket.take(0), bucket.take(0), bucket.take(0)], [0, 0, 0])
  assert.equal(bucket.take(0), 100)
  assert.equal(bucket.take(60), 40)
  assert.equal(bucket.take(99), 1)
  assert.equal(bucket.take(100), 0)
  assert.equal(bucket.take(100), 100)
})

test('a caller that waits as long as told gets a token, with any rounding errors', () => {
  const bucket = new TokenBucket({ calls: 3, perMs: 1_000 }, 7)
  let now = 0.1
  let passed = 0
  for (let i = 0; i < 10_000; i++) {
    const waitMs = bucket.take(now)
    if (waitMs === 0) passed++
    else {
      now += waitMs
      assert.equal(bucket.take(now), 0)
      passed++
    }
  }
  assert.ok(Math.abs(now - ((passed - 7) * 1_000) / 3) < 1, `${passed} in ${now} ms`)
})

test('a pause fills the bucket up to the burst and no further', () => {
  const bucket = new TokenBucket({ calls: 1, perMs: 1_000 }, 2)
  bucket.take(0)
  bucket.take(0)
  assert.equal(bucket.available(0), 0)
  assert.equal(bucket.available(999), 0)
  assert.equal(bucket.available(1_000), 1)
  assert.equal(bucket.available(1_000_000), 2)
  assert.deepEqual(
    [0, 0, 0].map(() => bucket.take(1_000_000)),
    [0, 0, 1_000],
  )
})
