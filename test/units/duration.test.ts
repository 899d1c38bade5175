import assert from 'node:assert/strict'
import { test } from 'node:test'
import { duration, formatDuration, waitDuration } from '../../src/units/duration.ts'

const read = (value: unknown, bounds?: { min?: number; max?: number }) => duration(bounds).safeParse(value)

test('a duration reads to milliseconds, whatever its unit', () => {
  for (const [text, ms] of [
    ['250ms', 250],
    ['1.5s', 1_500],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
    ['40', 40],
    [40, 40],
    ['0.6ms', 1],
  ] as const) {
    assert.equal(read(text).data, ms, String(text))
  }
})

test('text that is no duration is refused with the bounds and an example', () => {
  for (const wrong of [
    '5 s',
    '5sec',
    '-1s',
    '1h30m',
    '',
    's',
    '1e3ms',
    -1,
    Number.NaN,
    Infinity,
    true,
    null,
    {},
  ]) {
    const result = read(wrong)
    assert.equal(result.success, false, String(wrong))
    assert.equal(
      result.error?.issues[0]?.message,
      'expected a duration from 0ms to 24d, such as 250ms, 30s or 5m',
    )
  }
})

test('both bounds are allowed and nothing beyond them', () => {
  const bounds = { min: 1_000, max: 600_000 }
  assert.equal(read('1s', bounds).data, 1_000)
  assert.equal(read(600_000, bounds).data, 600_000)
  for (const beyond of ['999ms', 999, '10.1m', 600_001]) {
    assert.equal(
      read(beyond, bounds).error?.issues[0]?.message,
      'expected a duration from 1s to 10m, such as 250ms, 30s or 5m',
    )
  }
})

test('milliseconds are written in the largest unit without a fraction', () => {
  assert.deepEqual([0, 250, 1_500, 90_000, 300_000, 86_400_000].map(formatDuration), [
    '0ms',
    '250ms',
    '1500ms',
    '90s',
    '5m',
    '1d',
  ])
})

test('a time to wait is rounded up: milliseconds below a second, whole seconds from there on', () => {
  assert.deepEqual([0, 0.2, 762, 999.5, 1_001, 3_200, 59_001, 3_541_000, 7_200_000].map(waitDuration), [
    '0ms',
    '1ms',
    '762ms',
    '1s',
    '2s',
    '4s',
    '1m',
    '3541s',
    '2h',
  ])
})
