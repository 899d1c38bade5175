import assert from 'node:assert/strict'
import { test } from 'node:test'
import { many, servers, tools } from './listed.ts'

test('a long list comes in pages that leave nothing out, over the borders of servers', async () => {
  const { page } = await servers({ a: many(499), none: {}, b: many(2), c: many(998), d: many(1) })
  const found: unknown[] = []
  const sizes: number[] = []
  for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
    const current = page(cursor)
    assert.ok(current?.tools)
    sizes.push(current.tools.length)
    found.push(...current.tools.map(({ name }) => name))
    cursor = current.nextCursor
  }
  assert.deepEqual(sizes, [500, 500, 500])
  assert.equal(new Set(found).size, 1_500)
  assert.deepEqual([found[498], found[499], found[501], found.at(-1)], ['a__t498', 'b__t0', 'c__t0', 'd__t0'])
})

test('a list that exactly fills its last page has no further page', async () => {
  const { page } = await servers({ a: many(500), none: {} })
  assert.equal(page()?.nextCursor, undefined)
})

test('a cursor that is none of ours is refused', async () => {
  const { read } = await servers({ a: many(501) })
  const forged = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  for (const cursor of [
    '',
    '1',
    'null',
    '!',
    forged(null),
    forged({}),
    forged([]),
    forged(['a']),
    forged(['a', -1]),
  ]) {
    assert.equal(read(cursor), undefined, cursor)
  }
  for (const value of [
    ['a', 1.5],
    ['a', '1'],
    [1, 1],
    ['gone', 0],
    ['', 0],
    ['__proto__', 0],
    ['a', 1e99],
  ]) {
    assert.equal(read(forged(value)), undefined, JSON.stringify(value))
  }
})

test('a cursor behind the end of a list that shrank goes on with the next server', async () => {
  const { page } = await servers({ a: many(2), b: tools('x') })
  const cursor = Buffer.from(JSON.stringify(['a', 500])).toString('base64url')
  assert.deepEqual(
    page(cursor)?.tools?.map(({ name }) => name),
    ['b__x'],
  )
})

test('a list without a server that is down says so, on every page', async () => {
  const { page } = await servers({ a: many(501), down: undefined, other: undefined })
  const first = page()
  const partial = {
    source: 'missing_servers',
    reason: 'not available now: down, other',
    missing: ['down', 'other'],
  }
  assert.deepEqual(first?._meta, { 'dev.breakwater/partial': partial })
  assert.deepEqual(page(first?.nextCursor)?._meta, first?._meta)
})
