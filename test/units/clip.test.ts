import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { clip, ownText } from '../../src/units/recent.ts'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as () => void

test('a short text stays unchanged, and a longer text keeps its beginning', () => {
  assert.equal(clip('four', 4), 'four')
  assert.equal(clip('fourth', 4), 'four')
  assert.equal(clip('日本語', 2), '日本')
  assert.equal(clip('a😀', 2), 'a\ud83d', 'half of a pair')
  assert.equal(ownText(''), '')
})

test('the beginning of a large text does not keep the rest', () => {
  const MIB = 1024 ** 2
  gc()
  const before = process.memoryUsage().heapUsed
  const kept = Array.from({ length: 100 }, (_, n) => clip(`${n} ${'x'.repeat(MIB)}`.split('').join(''), 256))
  gc()
  assert.ok(process.memoryUsage().heapUsed - before < 10 * MIB)
  assert.equal(kept.length, 100)
})
