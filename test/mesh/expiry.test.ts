import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ExpiryQueue, type Expiry } from '../../src/mesh/time-limit.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { pick, seeded } from '../support/random.ts'

test('each timeout expires at its own time, once', async () => {
  const clock = new ManualClock()
  const queue = new ExpiryQueue(clock, 100)
  const expired: string[] = []
  queue.add(() => expired.push(`a at ${clock.now()}`))
  await clock.advance(40)
  queue.add(() => expired.push(`b at ${clock.now()}`))
  queue.add(() => expired.push(`c at ${clock.now()}`))
  await clock.advance(500)
  assert.deepEqual(expired, ['a at 100', 'b at 140', 'c at 140'])
})

test('a removed timeout does not expire, from any place in the queue', async () => {
  const clock = new ManualClock()
  for (const removed of ['a', 'b', 'c']) {
    const queue = new ExpiryQueue(clock, 100)
    const expired: string[] = []
    const entries = ['a', 'b', 'c'].map((name) => [name, queue.add(() => expired.push(name))] as const)
    for (const [name, expiry] of entries) if (name === removed) queue.remove(expiry)
    await clock.advance(100)
    assert.deepEqual(
      expired,
      ['a', 'b', 'c'].filter((name) => name !== removed),
    )
  }
})

test('removing twice, or after the end, does nothing', async () => {
  const clock = new ManualClock()
  const queue = new ExpiryQueue(clock, 100)
  const expired: string[] = []
  const first = queue.add(() => expired.push('first'))
  queue.remove(first)
  queue.remove(first)
  const second = queue.add(() => expired.push('second'))
  await clock.advance(100)
  queue.remove(second)
  queue.add(() => expired.push('third'))
  await clock.advance(100)
  assert.deepEqual(expired, ['second', 'third'])
})

test('any number of timeouts takes one timer, and none when the queue has run empty', async () => {
  const clock = new ManualClock()
  const queue = new ExpiryQueue(clock, 100)
  const many = Array.from({ length: 1_000 }, () => queue.add(() => undefined))
  assert.equal(clock.pending, 1)
  for (const expiry of many) queue.remove(expiry)
  await clock.advance(100)
  assert.equal(clock.pending, 0)
})

test('an expiring timeout may add and remove others', async () => {
  const clock = new ManualClock()
  const queue = new ExpiryQueue(clock, 100)
  const expired: string[] = []
  queue.add(() => {
    expired.push('first')
    queue.remove(second)
    queue.add(() => expired.push('third'))
  })
  const second = queue.add(() => expired.push('second'))
  await clock.advance(100)
  assert.deepEqual(expired, ['first'])
  await clock.advance(100)
  assert.deepEqual(expired, ['first', 'third'])
})

test('a queue of any history expires what a list of timers would', async () => {
  const random = seeded(7)
  const clock = new ManualClock()
  const queue = new ExpiryQueue(clock, 50)
  const due = new Map<Expiry, number>()
  const late: number[] = []
  for (let i = 0; i < 2_000; i++) {
    const action = pick(random, ['add', 'add', 'remove', 'wait'])
    if (action === 'add') {
      const expiry = queue.add(() => {
        late.push(clock.now() - (due.get(expiry) ?? assert.fail('expired though it was removed')))
        due.delete(expiry)
      })
      due.set(expiry, clock.now() + 50)
    } else if (action === 'remove') {
      const expiry = pick(random, [...due.keys()])
      if (expiry !== undefined) queue.remove(expiry)
      due.delete(expiry)
    } else await clock.advance(Math.floor(random() * 20))
    assert.ok(
      [...due.values()].every((at) => at > clock.now()),
      'a timeout did not expire',
    )
  }
  assert.ok(late.length > 100 && late.every((ms) => ms === 0))
})
