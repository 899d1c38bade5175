import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tarpit } from '../../../src/downstream/limits/tarpit.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'
import { headersFor, modern, testModern } from '../modern/test-modern.ts'
import { testEndpoint } from '../test-endpoint.ts'

function setUp(longestMs = 1_000, perClient = 2_000) {
  const clock = new ManualClock()
  const count = { held: 0 }
  const tarpit = new Tarpit(clock, longestMs, { share: { max: 4_000, perClient } }, () => count.held++)

  /** Returns for how long each rejection of a client that retries at once was held, in milliseconds. */
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

/** Returns the longest hold of each round, for `many` clients that retry at once. */
async function stubborn({ clock, tarpit }: ReturnType<typeof setUp>, many: number, rounds: number) {
  const longest: number[] = []
  for (let n = 0; n < rounds; n++) {
    const before = clock.now()
    const pauses = Array.from({ length: many }, () => tarpit.hold('a', before, 30_000))
    const over = Promise.all(pauses.filter((pause) => pause !== undefined)).then(() => undefined)
    while (!(await isOver(over))) await clock.advance(1)
    longest.push(clock.now() - before)
    await clock.advance(1)
  }
  return longest
}

test('a client that retries too soon more than ten times waits longer and longer, above ten retries a second', async () => {
  const { impatient, clock } = setUp()
  const pauses = await impatient(20, 30_000)
  assert.deepEqual(pauses.slice(0, 11), Array<number>(11).fill(0))
  const held = pauses.slice(11)
  assert.ok(
    held.every((pause, n) => pause > 0 && pause >= (held[n - 1] ?? 0)),
    String(held),
  )
  const since = clock.now()
  await impatient(100, 30_000)
  const perSecond = 100_000 / (clock.now() - since)
  assert.ok(perSecond > 8 && perSecond < 12, `${perSecond} a second`)
})

test('nobody waits for longer than the longest pause, however many clients wait', async () => {
  const longest = await stubborn(setUp(), 60, 10)
  assert.equal(longest.at(-1), 1_000)
  assert.ok(longest.every((pause) => pause <= 1_000))
})

test('nobody waits for longer than its retry time', async () => {
  const { impatient } = setUp()
  const pauses = await impatient(60, 30)
  assert.equal(Math.max(...pauses), 30)
})

test('several agents of one session that heed their retry times are not held', async () => {
  const { clock, tarpit } = setUp()
  // Eight agents in turn, each told to wait a second: the latest advice is always for another agent.
  for (let n = 0; n < 400; n++) {
    assert.equal(tarpit.hold('a', clock.now(), 1_000), undefined)
    await clock.advance(125)
  }
})

test('a client told to avoid one tool for long is not held when it calls another tool in time', async () => {
  const { clock, tarpit } = setUp()
  for (let n = 0; n < 300; n++) {
    if (n % 100 === 0) assert.equal(tarpit.hold('a', clock.now(), 60_000), undefined)
    assert.equal(tarpit.hold('a', clock.now(), 200), undefined)
    await clock.advance(200)
  }
})

test('a client that heeds its retry times is never held, however often it is rejected', async () => {
  const { clock, tarpit } = setUp()
  for (let n = 0; n < 100; n++) {
    assert.equal(tarpit.hold('a', clock.now(), 50), undefined)
    await clock.advance(50)
  }
})

test('heeding a retry time once resets the tarpit', async () => {
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

test('concurrent calls do not evade the tarpit: each call after the first rejection counts', async () => {
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
  // The client with the longer wait is still known.
  assert.equal(tarpit.size, 2)
})

test('a client is not held for another client, and an accepted call is never held', async () => {
  const { clock, tarpit, impatient } = setUp()
  await impatient(15, 5_000)
  assert.equal(tarpit.hold('b', clock.now(), 5_000), undefined)
  assert.equal(tarpit.hold('a', clock.now(), undefined), undefined)
  assert.notEqual(tarpit.hold('a', clock.now(), 5_000), undefined)
})

test('the number of held calls is limited, per client and in total, and is 0 with a longest pause of 0', async () => {
  const { clock, tarpit, count, impatient } = setUp()
  const clients = ['a', 'b', 'c', 'd', 'e', 'f']
  for (const client of clients) await impatient(12, 50_000, client)
  count.held = 0
  const rejectOften = (client: string) => {
    for (let n = 0; n < 1_000; n++) void tarpit.hold(client, clock.now(), 50_000)
  }
  rejectOften('a')
  assert.equal(count.held, 125)
  clients.forEach(rejectOften)
  assert.equal(count.held, 500)
  await clock.advance(1_000)
  rejectOften('b')
  assert.equal(count.held, 500 + 125)
  tarpit.tune(0)
  await clock.advance(1_000)
  assert.equal(tarpit.hold('a', clock.now(), 50_000), undefined)
})

test('held calls never exceed a quarter of the calls an address may have under way', async () => {
  const { clock, tarpit, count, impatient } = setUp(1_000, 50)
  await impatient(12, 5_000)
  count.held = 0
  for (let n = 0; n < 1_000; n++) void tarpit.hold('a', clock.now(), 5_000)
  assert.equal(count.held, 12)
})

test('a stopping gateway releases held calls, and holds no more', async () => {
  const { clock, tarpit, impatient } = setUp()
  await impatient(13, 5_000)
  const pauses = [tarpit.hold('a', clock.now(), 5_000), tarpit.hold('a', clock.now(), 5_000)]
  assert.ok(pauses.every((pause) => pause !== undefined))
  tarpit.close()
  await Promise.all(pauses)
  assert.equal(clock.pending, 0)
  assert.equal(tarpit.hold('a', clock.now(), 5_000), undefined)
})

const slow = { perSession: { rate: { calls: 1, perMs: 1_000 } } }

test('in a session of the legacy era rejections of a client that does not wait come later', async (t) => {
  const { begin, post, clock } = await testEndpoint(t, () => '{}', {}, slow)
  const headers = await begin()
  const call = (id: number) => post({ jsonrpc: '2.0', id, method: 'tools/list' }, headers)
  // The first call is answered, the second learns when to retry, and ten more may come too soon.
  for (let id = 0; id < 12; id++) {
    await call(id)
    await clock.advance(1)
  }
  const timers = clock.pending
  const held = call(12)
  await until('the rejection is held', () => clock.pending === timers + 1)
  await clock.advance(10)
  const { error } = (await held).json as { error: { data: { reason: string } } }
  assert.equal(error.data.reason, 'rate_limited')
})

test('a client that asks for session after session in the legacy era is held as well', async (t) => {
  const { begin, post, clock } = await testEndpoint(t, () => '{}', {}, { perTenant: slow.perSession })
  await begin()
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  }
  const again = () => post({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
  for (let n = 0; n < 11; n++) {
    await again()
    await clock.advance(1)
  }
  const timers = clock.pending
  const held = again()
  await until('the rejection is held', () => clock.pending === timers + 1)
  await clock.advance(10)
  const { error } = (await held).json as { error: { data: { reason: string } } }
  assert.equal(error.data.reason, 'rate_limited')
})

test('a batch is held if all its calls were rejected, and at most for the shortest time told to any of them', async (t) => {
  const retryAfterMs: Record<string, number> = { a: 50_000, b: 5 }
  const { begin, post, clock } = await testEndpoint(t, (request) => {
    const { name = '' } = (request.message.value.params ?? {}) as { name?: string }
    const told = retryAfterMs[name]
    const text = JSON.stringify({ jsonrpc: '2.0', id: request.id, error: { code: 1, message: 'no' } })
    return told === undefined ? '{}' : Promise.resolve({ text, status: 200, retryAfterMs: told })
  })
  const headers = await begin('2025-03-26')
  let id = 0
  const batch = (...names: string[]) =>
    post(
      names.map((name) => ({ jsonrpc: '2.0', id: id++, method: 'tools/call', params: { name } })),
      headers,
    )
  for (let n = 0; n < 11; n++) {
    await batch('a', 'a')
    await clock.advance(1)
  }
  // The batch has a possibly large answer, which must not be held back.
  assert.equal(((await batch('a', 'c')).json as unknown[]).length, 2)
  const timers = clock.pending
  const held = batch('a', 'b')
  await until('the rejection is held', () => clock.pending === timers + 1)
  await clock.advance(5)
  assert.equal(((await held).json as unknown[]).length, 2)
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
  await until('the rejection is held', () => clock.pending === timers + 1)
  await clock.advance(10)
  const { messages } = await held
  assert.equal((messages[0]?.error as { data: { reason: string } }).data.reason, 'rate_limited')
})
