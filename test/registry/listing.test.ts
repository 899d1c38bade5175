import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ListWaits, settled } from '../../src/registry/listing.ts'
import { Names } from '../../src/registry/names.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { plainTool, type Script, ScriptedUpstream } from '../support/scripted-upstream.ts'
import { until } from '../support/until.ts'
import { oneTool } from './discovered.ts'
import { servers, tools } from './listed.ts'
import { testServer } from './test-server.ts'

test('a list shows all servers in the order of the config, under their names', async () => {
  const { page } = await servers({ b: tools('x', 'y'), empty: {}, a: tools('x') })
  assert.deepEqual(page(), { tools: ['b__x', 'b__y', 'a__x'].map(plainTool) })
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
  const meta = {
    ui: { resourceUri: 'ui://w/a', other: 'ui://w/a' },
    'ui/resourceUri': 'ui://w/b',
    'openai/outputTemplate': 'ui://w/c',
    x: 1,
  }
  const { page } = await servers({
    s: {
      tools: [
        { _meta: meta, ...plainTool('t') },
        { ...plainTool('u'), _meta: { ui: 'x' } },
        { ...plainTool('v'), _meta: { 'openai/outputTemplate': 'ui://w/a' } },
      ],
    },
  })
  assert.deepEqual(page()?.tools, [
    {
      _meta: {
        ui: { resourceUri: 'ui://s__w/a', other: 'ui://w/a' },
        'ui/resourceUri': 'ui://s__w/b',
        'openai/outputTemplate': 'ui://s__w/c',
        x: 1,
      },
      ...plainTool('s__t'),
    },
    { ...plainTool('s__u'), _meta: { ui: 'x' } },
    { ...plainTool('s__v'), _meta: { 'openai/outputTemplate': 'ui://s__w/a' } },
  ])
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

test('a hanging server delays lists once, and again after a return', async () => {
  let answer = () => {}
  const greeted = new Promise<void>((resolve) => (answer = resolve))
  let held: Promise<unknown> = greeted
  const script: Script = (method, params, session) => held.then(() => oneTool(method, params, session))
  const { server, clock } = testServer({}, [new ScriptedUpstream(script)])
  server.start()
  const waits = new ListWaits(clock)
  const done: string[] = []
  const list = (name: string, servers = [server], signal = new AbortController().signal) =>
    void waits.settled(servers, 2_000, 2_000, { signal, era: 'legacy' }).then(() => done.push(name))
  list('first')
  await clock.advance(1_000)
  list('second')
  await clock.advance(999)
  assert.deepEqual(done, [])
  await clock.advance(1)
  assert.deepEqual(done, ['first', 'second'])
  list('third')
  await clock.advance(0)
  assert.deepEqual(done, ['first', 'second', 'third'])
  // A later waiter has its own timeout.
  const other = testServer({}, [new ScriptedUpstream(script)], { name: 'other', clock })
  other.server.start()
  list('both', [server, other.server])
  await clock.advance(1_999)
  assert.equal(done.length, 3)
  answer()
  await until('both lists have come', () => done.length === 4)
  held = new Promise(() => undefined)
  server.refresh()
  list('refreshed')
  await clock.advance(0)
  assert.equal(done.length, 4)
})

test('no two tools have one name on the endpoint of all servers, whatever a server calls them', async () => {
  const names = new Names('__')
  const shortened = names.exposeTool('a', 'x.y').slice('a__'.length)
  // With 32 bits of a digest, colliding names are found quickly.
  const [one, other] = [13_367, 37_726].map((number) => 't'.repeat(100) + number) as [string, string]
  assert.equal(names.exposeTool('a', one), names.exposeTool('a', other))
  const { found, page } = await servers({ a: tools('x.y', shortened, one, other), b: tools('z') })
  const shown = page()?.tools?.map(({ name }) => name)
  assert.deepEqual(shown, [`a__${shortened}`, names.exposeTool('a', one), 'b__z'])
  const a = found.get('a')
  assert.equal(a?.toolShownAs(shortened), undefined)
  assert.equal(a?.toolShownAs(names.exposeTool('a', one).slice('a__'.length)), one)
  assert.deepEqual(
    a?.unlisted.map(({ name, where }) => [name, where]),
    [
      ['x.y', 'aggregate'],
      [other, 'aggregate'],
    ],
  )
})

test('a list is made of texts: no tool is read but those with a user interface', async () => {
  const withUi = { ...plainTool('shown'), _meta: { ui: { resourceUri: 'ui://w/a' } } }
  const { found, read } = await servers({ s: { tools: [plainTool('x'), plainTool('y'), withUi] } })
  const readOf: string[] = []
  for (const entry of found.get('s')!.entries('tools')) {
    const { key, value } = entry
    Object.defineProperty(entry, 'value', {
      get() {
        readOf.push(key)
        return value
      },
    })
  }
  read()
  assert.deepEqual(readOf, ['shown'])
})
