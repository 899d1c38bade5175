import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isWithin, windowSchema } from '../../src/approval/window.ts'

const at = (iso: string) => Date.parse(iso)

test('a window holds on its days, from its first minute to the minute before its last', () => {
  const window = windowSchema.parse({ days: 'mon-fri', from: '09:00', to: '16:00', zone: 'Europe/Berlin' })
  // 2026-12-04 is a Friday; Berlin is an hour ahead of UTC in winter.
  assert.equal(isWithin(window, at('2026-12-04T08:00:00Z')), true)
  assert.equal(isWithin(window, at('2026-12-04T07:59:59Z')), false)
  assert.equal(isWithin(window, at('2026-12-04T14:59:59Z')), true)
  assert.equal(isWithin(window, at('2026-12-04T15:00:00Z')), false)
  assert.equal(isWithin(window, at('2026-12-05T10:00:00Z')), false)
})

test('a window follows daylight saving time', () => {
  const window = windowSchema.parse({ days: 'wed', from: '09:00', to: '10:00', zone: 'Europe/Berlin' })
  assert.equal(isWithin(window, at('2026-07-01T07:30:00Z')), true)
  assert.equal(isWithin(window, at('2026-07-01T08:30:00Z')), false)
})

for (const [what, given] of [
  ['days in reverse', { days: 'fri-mon', from: '09:00', to: '16:00', zone: 'UTC' }],
  ['an unknown day', { days: 'everyday', from: '09:00', to: '16:00', zone: 'UTC' }],
  ['a third day', { days: 'mon-tue-wed', from: '09:00', to: '16:00', zone: 'UTC' }],
  ['an end before its begin', { days: 'mon', from: '16:00', to: '09:00', zone: 'UTC' }],
  ['an hour after midnight as 24:30', { days: 'mon', from: '09:00', to: '24:30', zone: 'UTC' }],
  ['an unknown zone', { days: 'mon', from: '09:00', to: '16:00', zone: 'Mars/Olympus' }],
] as const)
  test(`a window with ${what} is refused`, () => {
    assert.equal(windowSchema.safeParse(given).success, false)
  })
