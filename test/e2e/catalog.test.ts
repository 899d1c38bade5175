import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeClients, connect } from './support/sdk-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'
const EXTRA = 1_200

let gateway: Gateway
let remote: HttpToolbox

before(async () => {
  remote = await HttpToolbox.start()
  const many = { TOOLBOX_EXTRA: String(EXTRA), TOOLBOX_PAGE: '100' }
  gateway = await Gateway.start({
    servers: {
      many: stdioToolbox({ env: many }),
      picky: stdioToolbox({ tools: { include: ['e*', 'pid'], exclude: ['env'] } }),
      mortal: { url: remote.url, grace: '5s', health: { every: '1s' } },
      stormy: stdioToolbox(),
    },
  })
  await gateway.waitFor('up', 'many', 'picky', 'mortal', 'stormy')
})
after(async () => {
  await closeClients()
  await cleanUp()
})

interface Tools {
  readonly names: string[]
  readonly partial: Json | undefined
}

/** The whole list of an endpoint, page by page. */
async function toolsOf(client: RawClient): Promise<Tools> {
  const names: string[] = []
  let params: Json = {}
  for (;;) {
    const { result } = (await client.request('tools/list', params)) as {
      result: { tools: { name: string }[]; nextCursor?: string; _meta?: Record<string, Json> }
    }
    names.push(...result.tools.map(({ name }) => name))
    if (result.nextCursor === undefined) return { names, partial: result._meta?.['dev.breakwater/partial'] }
    params = { cursor: result.nextCursor }
  }
}

test('long lists come in pages, on both endpoints, without a gap', async () => {
  const expected = Array.from({ length: EXTRA }, (_, index) => `extra_${index}`)
  for (const [url, prefix] of [
    [gateway.mcp('many'), ''],
    [gateway.mcp(), 'many__'],
  ] as const) {
    const client = await connect(url)
    const names: string[] = []
    let pages = 0
    let cursor: string | undefined
    do {
      const page = await client.listTools({ cursor })
      names.push(...page.tools.map(({ name }) => name))
      cursor = page.nextCursor
      pages++
    } while (cursor !== undefined)
    assert.ok(pages > 1)
    const extras = names.filter((name) => name.startsWith(`${prefix}extra_`))
    assert.deepEqual(
      extras,
      expected.map((name) => prefix + name),
    )
  }
})

test('a cursor that nobody gave is refused', async () => {
  const client = await RawClient.open(gateway.mcp())
  for (const cursor of ['', 'nonsense', 'WyJub3doZXJlIiwwXQ', 7]) {
    const { error } = (await client.request('tools/list', { cursor })) as { error?: Json }
    assert.equal(error?.code, -32602, String(cursor))
  }
})

test('tools that are filtered out are neither listed nor called, on both endpoints', async () => {
  const one = await RawClient.open(gateway.mcp('picky'))
  const all = await RawClient.open(gateway.mcp())
  assert.deepEqual((await toolsOf(one)).names, ['echo', 'pid'])
  const among = (await toolsOf(all)).names.filter((name) => name.startsWith('picky__'))
  assert.deepEqual(among, ['picky__echo', 'picky__pid'])
  for (const [client, prefix] of [
    [one, ''],
    [all, 'picky__'],
  ] as const) {
    for (const hidden of ['env', 'session']) {
      const { error } = (await client.call(prefix + hidden)) as { error: Json }
      assert.equal(error.code, -32602, hidden)
    }
    assert.equal(await client.say(`${prefix}echo`, { text: 'seen' }), 'seen')
  }
})

test('a storm of changes reaches clients as a few', async () => {
  for (const [url, prefix] of [
    [gateway.mcp('stormy'), ''],
    [gateway.mcp(), 'stormy__'],
  ] as const) {
    const client = await RawClient.open(url)
    const stream = await client.listen()
    await client.say(`${prefix}storm`, { count: 200 })
    await client.say(`${prefix}add`, { name: `calm_${prefix}` })
    await until('the last change is seen', async () => {
      const { names } = await toolsOf(client)
      return names.includes(`${prefix}calm_${prefix}`) && stream.messages(LIST_CHANGED).length > 0
    })
    const told = stream.messages(LIST_CHANGED).length
    assert.ok(told <= 5, `told ${told} times`)
  }
})

test('a server that died keeps its tools for a while, loses them, and gets them back by itself', async () => {
  const client = await RawClient.open(gateway.mcp())
  const stream = await client.listen()
  const isListed = async () => (await toolsOf(client)).names.includes('mortal__echo')
  const changes = () => stream.messages(LIST_CHANGED).length

  await remote.program.kill()
  await gateway.waitFor('down', 'mortal')
  const { names, partial } = await toolsOf(client)
  assert.ok(names.includes('mortal__echo'))
  assert.equal(partial?.source, 'stale')
  assert.match(String(partial.reason), /mortal/)
  assert.equal(changes(), 0)

  await until('its tools leave', async () => !(await isListed()))
  assert.deepEqual((await toolsOf(client)).partial?.missing, ['mortal'])
  await until('clients are told', () => changes() === 1)

  await remote.revive()
  await until('its tools are back', isListed)
  await until('clients are told', () => changes() === 2)
  assert.equal((await toolsOf(client)).partial, undefined)
})
