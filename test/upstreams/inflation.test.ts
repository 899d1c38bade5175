import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { until } from '../support/until.ts'
import { codingOf, Inflation } from '../../src/upstreams/http/inflation.ts'

test('a small reply that holds a huge one is read no further than it is taken', async () => {
  const huge = gzipSync(Buffer.alloc(64 * 1024 ** 2))
  let taken = 0
  let isOver = false
  const inflation = new Inflation('gzip', {
    take: (chunk) => {
      taken += chunk.length
      return false
    },
    failed: assert.fail,
  })
  inflation.write(huge, () => undefined)
  inflation.finish(() => (isOver = true))
  await until('some bytes are taken', () => taken > 0)
  for (let turn = 0; turn < 1_000; turn++) await setImmediate()
  assert.ok(taken <= 64 * 1024, String(taken))
  inflation.stop()
  for (let turn = 0; turn < 100; turn++) await setImmediate()
  assert.equal(isOver, false)
})

test('the codings that are read have their names in any case', () => {
  assert.deepEqual(['gzip', 'X-GZIP', ' Deflate ', 'BR'].map(codingOf), ['gzip', 'gzip', 'deflate', 'br'])
  for (const other of ['identity', 'zstd', 'gzip, gzip']) assert.equal(codingOf(other), undefined)
})
