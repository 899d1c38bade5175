import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Bursts } from '../../../src/chaos/decide/decide.ts'
import { createDice } from '../../../src/mesh/dice.ts'

const chain = (rate: number, meanLength: number, seed = 7) =>
  new Bursts(createDice(seed), 'fault/burst.slot', rate, meanLength)

test('a burst of mean 16 has a mean of 16 ± 1, and the rate over time is kept', () => {
  const steps = 400_000
  const bursts = chain(0.2, 16)
  let begun = 0
  let hit = 0
  let before = false
  for (let index = 0; index < steps; index++) {
    const { on } = bursts.at(index)
    if (on) hit++
    if (on && !before) begun++
    before = on
  }
  assert.ok(Math.abs(hit / begun - 16) < 1, `mean ${hit / begun}`)
  assert.ok(Math.abs(hit / steps - 0.2) < 0.01, `rate ${hit / steps}`)
})

test('a chain begins in its long-term state, not in a pause', () => {
  const begins = Array.from({ length: 2_000 }, (_, seed) => chain(0.3, 16, seed).at(0).on)
  const share = begins.filter(Boolean).length / begins.length
  assert.ok(Math.abs(share - 0.3) < 0.04, `share ${share}`)
})

test('a step is the same whenever and in whatever order it is asked for', () => {
  const inOrder = chain(0.3, 8)
  const expected = Array.from({ length: 10_000 }, (_, index) => inOrder.at(index).on)
  const other = chain(0.3, 8)
  for (const index of [9_999, 0, 5_000, 4_096, 4_095, 4_097, 8_191, 8_192, 17, 16]) {
    assert.equal(other.at(index).on, expected[index], `step ${index}`)
  }
})

test('a step far ahead costs no more than a block of draws', () => {
  let draws = 0
  const dice = createDice(1)
  const counted = new Bursts(
    (key, purpose) => {
      draws++
      return dice(key, purpose)
    },
    'x',
    0.5,
    4,
  )
  counted.at(10_000_000)
  assert.ok(draws <= 4_098, `${draws} draws`)
})

test('with a rate of 1 every step is on, with 0 none', () => {
  for (let index = 0; index < 100; index++) {
    assert.equal(chain(1, 8).at(index).on, true)
    assert.equal(chain(0, 8).at(index).on, false)
  }
})
