import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatSize, size } from '../../src/units/size.ts'

test('a size reads to bytes, whatever its unit', () => {
  for (const [text, bytes] of [
    ['1KiB', 1_024],
    ['1.5MiB', 1_572_864],
    ['2048B', 2_048],
    ['0.25GiB', 268_435_456],
    ['4096', 4_096],
    [4_096, 4_096],
  ] as const) {
    assert.equal(size().parse(text), bytes, String(text))
  }
})

test('a size that is malformed, or out of bounds, is refused with the bounds', () => {
  for (const wrong of ['4MB', '4 MiB', '1B', 1_023, '1GiB', 268_435_457, -1, null]) {
    const result = size().safeParse(wrong)
    assert.equal(
      result.error?.issues[0]?.message,
      'expected a size from 1KiB to 256MiB, such as 512KiB or 4MiB',
      String(wrong),
    )
  }
})

test('bytes are written in the largest unit without a fraction', () => {
  assert.deepEqual([1_000, 1_024, 524_288, 4_194_304].map(formatSize), ['1000B', '1KiB', '512KiB', '4MiB'])
})
