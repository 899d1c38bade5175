import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ListCache } from '../../../src/downstream/modern/relay.ts'
import type { Response } from '../../../src/downstream/respond.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { modern, testModern } from './test-modern.ts'

function counted(result: object) {
  let fetched = 0
  const fetch = (): Promise<Response> => {
    fetched++
    return Promise.resolve({ text: JSON.stringify({ jsonrpc: '2.0', id: fetched, result }), status: 200 })
  }
  return { fetch, fetched: () => fetched }
}

const k = { server: 's', key: 'k' }

const ttlOf = ({ text }: Response) => (JSON.parse(text) as { result: { ttlMs: number } }).result.ttlMs

test('a private list is kept for one caller, for as long as its server says', async () => {
  const clock = new ManualClock()
  const cache = new ListCache(clock)
  const { fetch, fetched } = counted({ tools: [], ttlMs: 1_000, cacheScope: 'private' })
  await cache.get(k, 'a', fetch)
  await cache.get(k, 'a', fetch)
  assert.equal(fetched(), 1)
  await cache.get(k, 'b', fetch)
  assert.equal(fetched(), 2, 'another caller has credentials of its own')
  await clock.advance(1_000)
  await cache.get(k, 'a', fetch)
  assert.equal(fetched(), 3)
})

test('a public list is kept for all', async () => {
  const cache = new ListCache(new ManualClock())
  const { fetch, fetched } = counted({ tools: [], ttlMs: 1_000, cacheScope: 'public' })
  await cache.get(k, 'a', fetch)
  await cache.get(k, 'b', fetch)
  assert.equal(fetched(), 1)
})

test('an aged list says how long it still holds', async () => {
  const clock = new ManualClock()
  const cache = new ListCache(clock)
  const { fetch } = counted({ tools: [], ttlMs: 1_000, cacheScope: 'public' })
  await cache.get(k, 'a', fetch)
  await clock.advance(400)
  assert.equal(ttlOf(await cache.get(k, 'a', fetch)), 600)
})

test('an absurd time is clamped, for the first reader too', async () => {
  const clock = new ManualClock()
  const cache = new ListCache(clock)
  const { fetch, fetched } = counted({ tools: [], ttlMs: 1e12, cacheScope: 'public' })
  assert.equal(ttlOf(await cache.get(k, 'a', fetch)), 5 * 60_000)
  await clock.advance(5 * 60_000)
  await cache.get(k, 'a', fetch)
  assert.equal(fetched(), 2)
})

test('callers that ask at once share one fetch', async () => {
  const cache = new ListCache(new ManualClock())
  const { fetch, fetched } = counted({ tools: [], ttlMs: 0, cacheScope: 'private' })
  await Promise.all([cache.get(k, 'a', fetch), cache.get(k, 'a', fetch)])
  assert.equal(fetched(), 1)
})

test('questions, errors, and lists without a lifetime are not kept', async () => {
  for (const result of [{ ttlMs: 1_000, resultType: 'input_required' }, { tools: [] }, { ttlMs: -5 }]) {
    const cache = new ListCache(new ManualClock())
    const { fetch, fetched } = counted(result)
    await cache.get(k, 'a', fetch)
    await cache.get(k, 'a', fetch)
    assert.equal(fetched(), 2, JSON.stringify(result))
  }
})

test("a caller with a short deadline waits for no other caller's fetch, and finds the stored list", async () => {
  const clock = new ManualClock()
  const cache = new ListCache(clock)
  const slow = cache.get(k, 'a', () => new Promise(() => {}))
  const own = { text: '{"id":1,"result":{"tools":[],"ttlMs":1000}}', status: 200 }
  assert.equal(await cache.get(k, 'a', () => Promise.resolve(own), true), own)
  const kept = await cache.get(k, 'a', () => assert.fail('the list is cached'), true)
  assert.equal(kept.status, 200)
  void slow
})

test('a list is not given out any more once its server has changed, whatever time it was promised', async () => {
  const cache = new ListCache(new ManualClock())
  for (const cacheScope of ['public', 'private']) {
    const { fetch, fetched } = counted({ tools: [], ttlMs: 1_000, cacheScope })
    const other = counted({ tools: [], ttlMs: 1_000, cacheScope })
    const key = { server: 's', key: cacheScope }
    const ask = () =>
      Promise.all([
        cache.get(key, 'a', fetch),
        cache.get({ server: 't', key: `t ${cacheScope}` }, 'a', other.fetch),
      ])
    await ask()
    cache.forget('s')
    await ask()
    await ask()
    assert.deepEqual([fetched(), other.fetched()], [2, 1], 'only the changed list is fetched again')
    cache.forget(undefined)
    await ask()
    assert.deepEqual([fetched(), other.fetched()], [3, 2])
  }
})

test('a list that was under way when its server changed is neither kept nor given to who asks later', async () => {
  const cache = new ListCache(new ManualClock())
  const { fetch, fetched } = counted({ tools: ['new'], ttlMs: 1_000, cacheScope: 'public' })
  let finish: (response: Response) => void = () => undefined
  const before = cache.get(k, 'a', () => new Promise((resolve) => (finish = resolve)))
  cache.forget('s')
  const after = cache.get(k, 'a', fetch)
  finish({ text: '{"result":{"tools":[],"ttlMs":1000,"cacheScope":"public"}}', status: 200 })
  assert.match((await before).text, /"tools":\[\]/)
  assert.match((await after).text, /new/)
  assert.match((await cache.get(k, 'b', fetch)).text, /new/)
  assert.equal(fetched(), 1)
})

test('lists over 64 MiB in total drop the oldest, and its size is given back', async () => {
  const cache = new ListCache(new ManualClock())
  const { fetch, fetched } = counted({ tools: ['x'.repeat(4 * 1024 * 1024)], ttlMs: 1_000 })
  const ask = async (n: number) => {
    const before = fetched()
    await cache.get({ server: 's', key: String(n) }, 'a', fetch)
    return fetched() > before
  }
  for (let n = 0; n < 8; n++) assert.equal(await ask(n), true)
  const kept = []
  for (let n = 7; n >= 0; n--) if (!(await ask(n))) kept.push(n)
  assert.deepEqual(kept, [7, 6, 5, 4, 3, 2, 1], 'the oldest list made room')
  cache.forget(undefined)
  for (let n = 0; n < 7; n++) assert.equal(await ask(n), true)
  for (let n = 0; n < 7; n++) assert.equal(await ask(n), false)
})

test('other parameters of a list request select another cached list, except the sender and the trace', async (t) => {
  const bench = await testModern(t, () => '{"tools":[],"ttlMs":60000,"cacheScope":"public"}')
  const fetched = async (params: object, own: object = {}) => {
    const before = bench.requests.length
    await bench.send(modern(1, 'tools/list', { ...params }, { ...own }))
    return bench.requests.length > before
  }
  assert.equal(await fetched({}), true)
  assert.equal(await fetched({ filter: 'a' }), true)
  assert.equal(await fetched({ filter: 'b' }), true)
  assert.equal(await fetched({ filter: 'a' }), false)
  assert.equal(await fetched({}, { 'com.example/locale': 'de' }), true)
  assert.equal(
    await fetched({}, { progressToken: 7, traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01` }),
    false,
  )
  assert.equal(await fetched({}, { 'dev.breakwater/intent': 'task-1' }), false)
})

test('a list with a cursor of more than 8 KiB is fetched for each who asks', async (t) => {
  const bench = await testModern(t, () => '{"tools":[],"ttlMs":60000,"cacheScope":"public"}')
  const ask = (id: number, cursor: string) => bench.send(modern(id, 'tools/list', { cursor }))
  for (const id of [1, 2]) await ask(id, 'x'.repeat(8_000))
  assert.equal(bench.requests.length, 1)
  for (const id of [3, 4]) await ask(id, 'x'.repeat(9_000))
  assert.equal(bench.requests.length, 3)
})
