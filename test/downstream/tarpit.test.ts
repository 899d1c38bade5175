import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tarpit } from '../../src/downstream/tarpit.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'
import { headersFor, modern, testModern } from './modern/test-modern.ts'
import { testEndpoint } from './test-endpoint.ts'

function setUp(longestMs = 1_000) {
  const clock = new ManualClock()
  const count = { held: 0 }
  const tarpit = new Tarpit(clock, longestMs, () => count.held++)

  /** A client that is rejected, and comes back at once: for how long each of its rejections was held, in milliseconds. */
  async function impatient(times: number, retryAfterMs: number, client = 'a'): Promise<number[]> {
    const pauses: number[] = []
    for (let n = 0; n < times; n++) {
      const before = clock.now()
      const pause = tarpit.hold(client, before, retryAfterMs)
      while (pause !== undefined && !(await isOver(pause))) await clock.advance(1)
      pauses.push(clock.now() - before)
      await clock.advance(1)
    }
    return pauses
  }
  return { clock, tarpit, count, impatient }
}

async function isOver(pause: Promise<void>): Promise<boolean> {
  return Promise.race([pause.then(() => true), Promise.resolve().then(() => false)])
}

test('whoever comes back too soon more than ten times in a row waits longer and longer, up to the longest pause', async () => {
  const { impatient, count } = setUp()
  const pauses = await impatient(20, 30_000)
  assert.deepEqual(pauses.slice(0, 11), Array<number>(11).fill(0))
  assert.deepEqual(pauses.slice(11), [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000])
  assert.equal(count.held, 9)
})

test('nobody waits for longer than it was told to stay away', async () => {
  const { impatient } = setUp()
  assert.deepEqual((await impatient(16, 30)).slice(11), [10, 20, 30, 30, 30])
})

test('whoever heeds what it was told is never held, however often it is rejected', async () => {
  const { clock, tarpit } = setUp()
  for (let n = 0; n < 100; n++) {
    assert.equal(tarpit.hold('a', clock.now(), 50), undefined)
    await clock.advance(50)
  }
})

test('heeding it once is enough to begin anew', async () => {
  const { clock, impatient } = setUp()
  assert.equal((await impatient(12, 5_000)).at(-1), 10)
  await clock.advance(5_000)
  assert.deepEqual(await impatient(11, 5_000), Array<number>(11).fill(0))
})

test('calls that were under way when the first of them was rejected are not held', async () => {
  const { clock, tarpit } = setUp()
  const cameAt = clock.now()
  await clock.advance(1)
  for (let n = 0; n < 100; n++) assert.equal(tarpit.hold('a', cameAt, 5_000), undefined)
})

test('many at a time do not come around it: each counts that comes after the first rejection', async () => {
  const { clock, tarpit, count } = setUp()
  void tarpit.hold('a', clock.now(), 5_000)
  for (let round = 0; round < 10; round++) {
    await clock.advance(1)
    const cameAt = clock.now()
    await clock.advance(1)
    for (let n = 0; n < 8; n++) void tarpit.hold('a', cameAt, 5_000)
  }
  assert.equal(count.held, 80 - 10)
})

test('a client is forgotten a minute after it may come back, when another is rejected', async () => {
  const { clock, tarpit, impatient } = setUp()
  for (let n = 0; n < 100; n++) void tarpit.hold(`${n}`, clock.now(), 1_000)
  const [before] = await impatient(1, 30_000)
  assert.equal(before, 0)
  await clock.advance(61_000)
  assert.equal(tarpit.size, 101)
  void tarpit.hold('another', clock.now(), 1_000)
  // The one that was told to stay away for longer is still known.
  assert.equal(tarpit.size, 2)
})

test('one client is not held for another, and what is no rejection never is', async () => {
  const { clock, tarpit, impatient } = setUp()
  await impatient(15, 5_000)
  assert.equal(tarpit.hold('b', clock.now(), 5_000), undefined)
  assert.equal(tarpit.hold('a', clock.now(), undefined), undefined)
  assert.notEqual(tarpit.hold('a', clock.now(), 5_000), undefined)
})

test('only so many are held at a time, and none with a longest pause of 0', async () => {
  const { clock, tarpit, count, impatient } = setUp()
  await impatient(12, 5_000)
  count.held = 0
  for (let n = 0; n < 1_000; n++) void tarpit.hold('a', clock.now(), 5_000)
  assert.equal(count.held, 500)
  await clock.advance(1_000)
  tarpit.tune(0)
  assert.equal(tarpit.hold('a', clock.now(), 5_000), undefined)
})

const slow = { perSession: { rate: { calls: 1, perMs: 1_000 } } }

test('in a session of the legacy era rejections of a client that does not wait come later', async (t) => {
  const { begin, post, clock } = await testEndpoint(t, () => '{}', {}, slow)
  const headers = await begin()
  const call = (id: number) => post({ jsonrpc: '2.0', id, method: 'tools/list' }, headers)
  // The first is answered, the second told when to come back, and ten more may come too soon.
  for (let id = 0; id < 12; id++) {
    await call(id)
    await clock.advance(1)
  }
  const timers = clock.pending
  const held = call(12)
  await until('it is held', () => clock.pending === timers + 1)
  await clock.advance(10)
  const { error } = (await held).json as { error: { data: { reason: string } } }
  assert.equal(error.data.reason, 'rate_limited')
})

test('clients of the modern era are told apart by their address and tenant', async (t) => {
  const { send, clock } = await testModern(t, () => '{}', { perTenant: slow.perSession })
  const body = modern(1, 'tools/list')
  const call = () => send(body, headersFor(body))
  for (let n = 0; n < 12; n++) {
    await call()
    await clock.advance(1)
  }
  const timers = clock.pending
  const held = call()
  await until('it is held', () => clock.pending === timers + 1)
  await clock.advance(10)
  const { messages } = await held
  assert.equal((messages[0]?.error as { data: { reason: string } }).data.reason, 'rate_limited')
})
