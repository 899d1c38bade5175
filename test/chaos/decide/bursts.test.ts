import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Bursts } from '../../../src/chaos/decide/decide.ts'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'

const chain = (rate: number, meanLength: number, seed = 7) =>
  new Bursts(createKeyedRandom(seed), 'fault/burst', rate, meanLength)

const slot = (index: number) => ({ per: 'slot' as const, index })

/** Standard deviations that hold 99.9 % of a normal distribution. */
const Z = 3.29

test('bursts with mean 16 have this mean, and the rate over time is kept, within their 99.9 % intervals', () => {
  const steps = 400_000
  const bursts = chain(0.2, 16)
  let begun = 0
  let hit = 0
  let before = false
  for (let index = 0; index < steps; index++) {
    const { on } = bursts.at(slot(index))
    if (on) hit++
    if (on && !before) begun++
    before = on
  }
  // Lengths are geometric.
  assert.ok(Math.abs(hit / begun - 16) < (Z * Math.sqrt(16 * 15)) / Math.sqrt(begun), `mean ${hit / begun}`)
  // Steps are correlated: the less a chain forgets at each step, the fewer steps count as independent.
  const kept = 1 - 1 / 16 - 0.2 / (16 * 0.8)
  const sd = Math.sqrt((0.2 * 0.8 * (1 + kept)) / (1 - kept) / steps)
  assert.ok(Math.abs(hit / steps - 0.2) < Z * sd, `rate ${hit / steps}`)
})

test('a chain begins in its long-term state, not in a pause', () => {
  const begins = Array.from({ length: 2_000 }, (_, seed) => chain(0.3, 16, seed).at(slot(0)).on)
  const share = begins.filter(Boolean).length / begins.length
  assert.ok(Math.abs(share - 0.3) < Z * Math.sqrt((0.3 * 0.7) / begins.length), `share ${share}`)
})

test('a step has the same draw at any time and in any order', () => {
  const inOrder = chain(0.3, 8)
  const expected = Array.from({ length: 10_000 }, (_, index) => inOrder.at(slot(index)).on)
  const other = chain(0.3, 8)
  for (const index of [9_999, 0, 5_000, 4_096, 4_095, 4_097, 8_191, 8_192, 17, 16]) {
    assert.equal(other.at(slot(index)).on, expected[index], `step ${index}`)
  }
})

test('a step far ahead costs no more than a block of draws', () => {
  let draws = 0
  const random = createKeyedRandom(1)
  const counted = new Bursts(
    (key, purpose) => {
      draws++
      return random(key, purpose)
    },
    'x',
    0.5,
    4,
  )
  counted.at(slot(10_000_000))
  assert.ok(draws <= 2 * 4_098, `${draws} draws`)
})

test('with a rate of 1 every step is on, with a rate of 0 no step', () => {
  for (let index = 0; index < 100; index++) {
    assert.equal(chain(1, 8).at(slot(index)).on, true)
    assert.equal(chain(0, 8).at(slot(index)).on, false)
  }
})

test('each task has a separate short chain: 8 calls at 2 % in bursts of 16 hit few tasks, and these tasks hard', () => {
  const bursts = chain(0.02, 16)
  const tasks = 20_000
  let hit = 0
  let calls = 0
  for (let task = 0; task < tasks; task++) {
    let own = 0
    for (let index = 0; index < 8; index++)
      if (bursts.at({ per: 'call', of: `task ${task}`, index }).on) own++
    calls += own
    if (own > 0) hit++
  }
  // A task is spared if its first call is outside a burst and no later call enters a burst: 0.98 · (1 − enter)^7.
  const share = 1 - 0.98 * (1 - 0.02 / (16 * 0.98)) ** 7
  const sd = Math.sqrt((share * (1 - share)) / tasks)
  assert.ok(Math.abs(hit / tasks - share) < Z * sd, `${hit / tasks} of the tasks, expected ${share}`)
  assert.ok(calls / hit > 3, `${calls / hit} calls of a task that is hit`)
})

test('chains of other tasks have other draws', () => {
  const bursts = chain(0.5, 2)
  const states = (of: string) =>
    Array.from({ length: 64 }, (_, index) => bursts.at({ per: 'call', of, index }).on)
  assert.notDeepEqual(states('a'), states('b'))
  assert.deepEqual(states('a'), states('a'))
})
