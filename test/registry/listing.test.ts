import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { ListKind } from '../../src/registry/kinds.ts'
import { listPage, settled } from '../../src/registry/listing.ts'
import { Names } from '../../src/registry/names.ts'
import type { Server } from '../../src/registry/server.ts'
import type { Json } from '../support/memory-pipe.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { testServer } from './test-server.ts'

const names = new Names('__')

interface Page {
  readonly tools?: readonly Json[]
  readonly nextCursor?: string
  readonly _meta?: Json
}

/** Servers that offer these lists; `undefined` is one that cannot be reached. */
async function servers(offers: Readonly<Record<string, Json | undefined>>, settings: Json = {}) {
  const found = new Map<string, Server>()
  for (const [name, lists] of Object.entries(offers)) {
    const empty = { tools: [], prompts: [], resources: [], resourceTemplates: [] }
    const upstream = new ScriptedUpstream(() => ({ result: { ...empty, ...lists } }))
    if (lists === undefined) upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
    const { server, start } = testServer(settings, [upstream], { name })
    await start()
    found.set(name, server)
  }
  const read = (cursor?: string, kind: ListKind = 'tools') => listPage(kind, cursor, found, names)
  const page = (cursor?: string) => JSON.parse(read(cursor) ?? 'null') as Page | null
  return { found, read, page }
}

const tools = (...all: string[]): Json => ({ tools: all.map((name) => ({ name })) })
const many = (count: number) => tools(...Array.from({ length: count }, (_, n) => `t${n}`))
const namesOn = (page: Page | null) => page?.tools?.map(({ name }) => name)

test('a list shows all servers in the order of the config, under their names', async () => {
  const { page } = await servers({ b: tools('x', 'y'), empty: {}, a: tools('x') })
  assert.deepEqual(page(), { tools: [{ name: 'b__x' }, { name: 'b__y' }, { name: 'a__x' }] })
})

test('no servers are an empty list', async () => {
  const { page } = await servers({})
  assert.deepEqual(page(), { tools: [] })
})

test('every kind of list has its own key rewritten, and nothing else', async () => {
  const { read } = await servers({
    s: {
      prompts: [{ name: 'p', title: 'p' }],
      resources: [
        { uri: 'file:///a', name: 'file:///a' },
        { uri: 'ui://w', name: 'w' },
      ],
      resourceTemplates: [{ uriTemplate: 'file:///{a}', name: 'n' }],
    },
  })
  assert.equal(read(undefined, 'prompts'), '{"prompts":[{"name":"s__p","title":"p"}]}')
  assert.equal(
    read(undefined, 'resources'),
    '{"resources":[{"uri":"breakwater://s/file:///a","name":"file:///a"},{"uri":"ui://s__w","name":"w"}]}',
  )
  assert.equal(
    read(undefined, 'resourceTemplates'),
    '{"resourceTemplates":[{"uriTemplate":"breakwater://s/file:///{a}","name":"n"}]}',
  )
})

test("a tool's user interface is named as the aggregate names it, nested or flat", async () => {
  const meta = { ui: { resourceUri: 'ui://w/a', other: 'ui://w/a' }, 'ui/resourceUri': 'ui://w/b', x: 1 }
  const { page } = await servers({
    s: {
      tools: [
        { _meta: meta, name: 't' },
        { name: 'u', _meta: { ui: 'x' } },
      ],
    },
  })
  assert.deepEqual(page()?.tools, [
    {
      _meta: { ui: { resourceUri: 'ui://s__w/a', other: 'ui://w/a' }, 'ui/resourceUri': 'ui://s__w/b', x: 1 },
      name: 's__t',
    },
    { name: 's__u', _meta: { ui: 'x' } },
  ])
})

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

test('a list that fills its last page has no next one', async () => {
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
  assert.deepEqual(namesOn(page(cursor)), ['b__x'])
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

test('a list waits for servers that are being discovered, but not for ever', async () => {
  const clock = new ManualClock()
  const slow = new ScriptedUpstream(() => new Promise(() => {}))
  const quick = testServer({}, undefined, { clock })
  const { server } = testServer({}, [slow], { clock })
  quick.server.start()
  server.start()
  const done: string[] = []
  void settled([quick.server], clock, 2_000).then(() => done.push('quick'))
  void settled([quick.server, server], clock, 2_000).then(() => done.push('both'))
  await clock.advance(1_999)
  assert.deepEqual(done, ['quick'])
  await clock.advance(1)
  assert.deepEqual(done, ['quick', 'both'])
})
