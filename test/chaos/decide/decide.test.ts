import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decider, dependsOnOrder } from '../../../src/chaos/decide/decide.ts'
import type { Fault } from '../../../src/chaos/plan/common.ts'
import { createKeyedRandom } from '../../../src/mesh/keyed-random.ts'
import { fault, schema } from '../rig.ts'

const read = (more: object): Fault => schema.parse({ faults: [fault('a', 'test.hold', more)] }).faults[0]!

/** Returns the counts, or times in ms, at which a fault is due. */
function due(when: object, of: 'count' | 'sinceMs', upTo: number): number[] {
  const decide = decider(read({ when }), createKeyedRandom(1))
  return Array.from({ length: upTo }, (_, index) => index + 1).filter((at) => {
    const facts = { drawKey: 'k', count: 1, sinceMs: 0, [of]: at }
    return decide(facts).because === undefined
  })
}

test('a rate of 0.02 over 100,000 decisions fires within the 99.9 % binomial interval', () => {
  const decide = decider(read({ rate: 0.02 }), createKeyedRandom(42))
  const calls = 100_000
  let fired = 0
  for (let call = 0; call < calls; call++) {
    if (decide({ drawKey: `call ${call}`, count: call + 1, sinceMs: 0 }).because === undefined) fired++
  }
  const sd = Math.sqrt(calls * 0.02 * 0.98)
  assert.ok(Math.abs(fired - 2_000) < 3.29 * sd, `fired ${fired}`)
})

test('when: the nth call, after some calls, every nth call', () => {
  assert.deepEqual(due({ onCall: 3 }, 'count', 10), [3])
  assert.deepEqual(due({ afterCalls: 7 }, 'count', 10), [8, 9, 10])
  assert.deepEqual(due({ everyNth: 4 }, 'count', 10), [4, 8])
  assert.deepEqual(due({ everyNth: 3, afterCalls: 3 }, 'count', 10), [6, 9])
})

test('when: a window begins at its start and is over at its end', () => {
  assert.deepEqual(due({ window: { from: 3, to: 6 } }, 'sinceMs', 10), [3, 4, 5])
  assert.deepEqual(due({ window: { from: 8 } }, 'sinceMs', 10), [8, 9, 10])
})

test('draws depend on the name of the fault, or on the domain shared by several faults', () => {
  const random = createKeyedRandom(1)
  const draw = (more: object) => decider(read(more), random)({ drawKey: 'k', count: 1, sinceMs: 0 }).u
  assert.equal(draw({ name: 'a' }), draw({ name: 'a', rate: 0.5, match: { tool: 'x' } }))
  assert.notEqual(draw({ name: 'a' }), draw({ name: 'b' }))
  assert.equal(draw({ name: 'a', domain: 'rack' }), draw({ name: 'b', domain: 'rack' }))
  assert.notEqual(draw({ name: 'a', domain: 'rack' }), draw({ name: 'rack' }))
})

test('counts, times and domains depend on arrival, and are labelled so', () => {
  assert.equal(dependsOnOrder(read({ when: { everyNth: 2 } })), true)
  assert.equal(dependsOnOrder(read({ domain: 'rack' })), true)
  assert.equal(dependsOnOrder(read({ match: { tool: 'x' } })), false)
  assert.equal(dependsOnOrder(read({ when: { ramp: { over: '1m' } } })), true)
  assert.equal(dependsOnOrder(read({ when: { burst: { meanLength: 2 } } })), true)
  assert.equal(dependsOnOrder(read({ when: { burst: { meanLength: 2, per: 'intent' } } })), false)
})

test('a ramp goes from one rate to the other in a straight line, up or down, and stays there', () => {
  for (const [from, to] of [
    [0, 0.8],
    [0.8, 0.1],
  ] as const) {
    const decide = decider(read({ rate: to, when: { ramp: { from, over: '100s' } } }), createKeyedRandom(7))
    for (const [at, expected] of [
      [0, from],
      [25_000, from + (to - from) / 4],
      [100_000, to],
      [500_000, to],
    ] as const) {
      const calls = 20_000
      let fired = 0
      for (let call = 0; call < calls; call++) {
        const { because, rate } = decide({ drawKey: `${at} ${call}`, count: call + 1, sinceMs: at })
        assert.ok(Math.abs(rate - expected) < 1e-9)
        if (because === undefined) fired++
      }
      const sd = Math.sqrt(calls * expected * (1 - expected))
      assert.ok(Math.abs(fired - calls * expected) <= 3.29 * sd, `${fired} of ${calls} at ${at}, ${expected}`)
    }
  }
})

test('a single draw leaves a task out of all faults', () => {
  const decide = decider(read({ match: { tasks: 0.3 } }), createKeyedRandom(3))
  const of = (task: string, drawKey: string) => decide({ drawKey, task, count: 1, sinceMs: 0 })
  let hit = 0
  for (let task = 0; task < 10_000; task++) {
    const one = of(`t${task}`, 'a')
    assert.equal(of(`t${task}`, 'b').because, one.because)
    if (one.because === undefined) hit++
    else assert.deepEqual([one.because, one.rate], ['task', 0.3])
  }
  assert.ok(Math.abs(hit - 3_000) < 3.29 * Math.sqrt(10_000 * 0.3 * 0.7), `${hit}`)
})
