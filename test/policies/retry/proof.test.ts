import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { type Ended, Proof } from '../../../src/policies/retry/proof.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** The retry proof of a tool. Names identify retries; `went` lists allowed, `refused` refused retries. */
function setUp() {
  const clock = new ManualClock()
  const proof = new Proof(clock)
  const went: string[] = []
  const refused: string[] = []
  const ends: Ended[] = []
  const wait = (
    name: string,
    {
      failedAt = clock.now(),
      turnAt = clock.now() + 100,
      retries = 0,
      leftMs = 60_000,
      signal = new Cancellation(),
    } = {},
  ) => {
    void proof.wait({ failedAt, turnAt, retries, leftMs }, signal).then((ended) => {
      if (ended !== undefined) ends.push(ended)
      ;(ended === undefined ? refused : went).push(name)
    })
    return signal
  }
  /** Ends the oldest allowed retry that has not ended. */
  const over = (isGood: boolean) => ends.shift()?.(isGood)
  return { clock, proof, went, refused, wait, over }
}

test('a retry goes as soon as a call has succeeded that began later than the one that failed', async () => {
  const { clock, proof, went, wait } = setUp()
  proof.bad(0)
  wait('a', { failedAt: 0, turnAt: 10_000 })
  await clock.advance(50)
  proof.good(50)
  await setImmediate()
  assert.deepEqual(went, ['a'])
})

test('a success of a call that began earlier, or with it, proves nothing', async () => {
  const { clock, proof, went, wait } = setUp()
  await clock.advance(100)
  proof.bad(100)
  wait('a', { failedAt: 100, turnAt: 10_000 })
  for (const begunAt of [99, 100]) proof.good(begunAt)
  await clock.advance(1_000)
  assert.deepEqual(went, [])
})

test('without a proof one retry at a time finds out, each when its turn has come', async () => {
  const { clock, proof, went, wait, over } = setUp()
  proof.bad(0)
  for (const name of ['a', 'b', 'c']) wait(name, { turnAt: 150 })
  await clock.advance(149)
  assert.deepEqual(went, [])
  await clock.advance(1)
  assert.deepEqual(went, ['a'])
  await clock.advance(1_000)
  assert.deepEqual(went, ['a'])
  over(false)
  await setImmediate()
  assert.deepEqual(went, ['a', 'b'])
})

test('the call that was sent again least finds out first', async () => {
  const { clock, proof, went, wait } = setUp()
  proof.bad(0)
  wait('twice', { retries: 2 })
  wait('never', { retries: 0 })
  await clock.advance(100)
  assert.deepEqual(went, ['never'])
})

test('pauses between retries that find out double from 100 ms to 500 ms', async () => {
  const { clock, proof, went, wait, over } = setUp()
  proof.bad(0)
  for (let i = 0; i < 6; i++) wait(`${i}`, { turnAt: 0 })
  const at: number[] = []
  for (let ms = 0; ms < 2_200; ms++) {
    if (went.length > at.length) {
      at.push(clock.now())
      proof.bad(clock.now())
      over(false)
    }
    await clock.advance(1)
  }
  assert.deepEqual(at, [100, 300, 700, 1_200, 1_700])
})

test('with a proof four retries go at a time, and each that succeeds lets one more go', async () => {
  const { clock, proof, went, wait, over } = setUp()
  await clock.advance(1)
  proof.bad(0)
  for (let i = 0; i < 12; i++) wait(`${i}`, { failedAt: 0, turnAt: 10_000 })
  await clock.advance(10)
  proof.good(5)
  await setImmediate()
  assert.equal(went.length, 4)
  over(false)
  await setImmediate()
  assert.equal(went.length, 5)
  over(true)
  await setImmediate()
  assert.equal(went.length, 7)
})

test('a retry that has not ended after 2 s keeps no other one back, and gives nothing back later', async () => {
  const { clock, proof, went, wait, over } = setUp()
  await clock.advance(1)
  proof.bad(0)
  proof.good(1)
  for (let nth = 0; nth < 10; nth++) wait(`${nth}`, { failedAt: 0 })
  await setImmediate()
  assert.equal(went.length, 4)
  await clock.advance(2_000)
  assert.equal(went.length, 8)
  over(false)
  await setImmediate()
  assert.equal(went.length, 8)
})

test('nobody waits for a proof for longer than 20 s, or than its own time', async () => {
  const { clock, refused, wait } = setUp()
  wait('patient', { turnAt: 60_000 })
  wait('short', { turnAt: 60_000, leftMs: 5_000 })
  await clock.advance(4_999)
  assert.deepEqual(refused, [])
  await clock.advance(1)
  assert.deepEqual(refused, ['short'])
  await clock.advance(14_999)
  assert.deepEqual(refused, ['short'])
  await clock.advance(1)
  assert.deepEqual(refused, ['short', 'patient'])
})

test('for a tool that has done nothing but fail for 30 s nobody waits', async () => {
  const { clock, proof, refused, wait } = setUp()
  for (let second = 0; second <= 30; second++) {
    proof.bad(clock.now())
    if (second < 30) await clock.advance(1_000)
  }
  wait('a', { turnAt: clock.now() + 100 })
  await clock.advance(101)
  assert.deepEqual(refused, ['a'])
})

test('a tool that has not been called has not failed: its next failure is followed by a retry', async () => {
  const { clock, proof, went, wait } = setUp()
  for (let i = 0; i < 4; i++) {
    proof.bad(clock.now())
    await clock.advance(1_000)
  }
  await clock.advance(3_600_000)
  proof.bad(clock.now())
  wait('a', { turnAt: clock.now() + 75 })
  await clock.advance(100)
  assert.deepEqual(went, ['a'])
})

test('a retry that is given up waits no longer, and leaves no timer behind', async () => {
  const { clock, proof, went, refused, wait } = setUp()
  proof.bad(0)
  const signal = wait('a', { turnAt: 200 })
  signal.abort(new Error('gave up'))
  await clock.advance(200)
  assert.deepEqual([went, refused, clock.pending], [[], ['a'], 0])
})
