import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { faults } from '../../../src/chaos/faults/index.ts'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { ModernClient } from '../support/modern-client.ts'
import { descriptionOf, OWN_PAGE, pagedServer, TTL_MS } from '../support/paged-server.ts'
import { RawClient } from '../support/raw-client.ts'

const eras = ['legacy', 'modern'] as const
const sides = ['upstream', 'client'] as const
const endpoints = ['/mcp', '/mcp/{server}'] as const

/** Tools per page of the gateway's own list, at the endpoint of all servers. */
const GATEWAY_PAGE = 500

/** Longest cache lifetime after clamping by the gateway, in milliseconds. */
const LONGEST_TTL_MS = 300_000

const TEN_YEARS_MS = 315_360_000_000
const LATE_MS = 100

interface Cell {
  readonly era: (typeof eras)[number]
  readonly side: (typeof sides)[number]
  readonly endpoint: (typeof endpoints)[number]
  /** Whether the client asked second, after another client had asked under the fault. */
  readonly isLater: boolean
}

/** A list as seen by a client that follows all cursors. */
interface View {
  readonly names: readonly string[]
  /** Names of the members the tools require. */
  readonly members: readonly string[]
  readonly descriptions: readonly unknown[]
  /** The code of the final error. */
  readonly code: number | undefined
  /** The first page's. */
  readonly ttlMs: unknown
  readonly tookMs: number
}

type Look = () => Promise<View>

async function lookWith(ask: (params: Json) => Promise<Json>): Promise<View> {
  const since = performance.now()
  const names: string[] = []
  const members: string[] = []
  const descriptions: unknown[] = []
  let ttlMs: unknown
  for (let cursor: unknown; ;) {
    const { result, error } = await ask(cursor === undefined ? {} : { cursor })
    const tookMs = performance.now() - since
    const seen = { names, members, descriptions, ttlMs, tookMs }
    if (error !== undefined) return { ...seen, code: (error as { code: number }).code }
    const { tools, nextCursor, ...rest } = result as { tools: Json[]; nextCursor?: unknown; ttlMs?: unknown }
    for (const { name, inputSchema, description } of tools) {
      names.push(String(name).replace(/^paged__/, ''))
      descriptions.push(description)
      members.push(...Object.keys((inputSchema as { properties: Json }).properties))
    }
    ttlMs ??= rest.ttlMs
    if (nextCursor === undefined) return { ...seen, ttlMs, code: undefined }
    cursor = nextCursor
  }
}

async function clientOf(era: Cell['era'], url: string): Promise<Look> {
  if (era === 'modern') {
    const client = new ModernClient(url)
    return () =>
      lookWith((params) => client.ask('tools/list', params).then(({ messages }) => messages[0] ?? {}))
  }
  const client = await RawClient.open(url)
  return () => lookWith((params) => client.request('tools/list', params))
}

interface ListFault {
  readonly config: Json
  /** Checks a client's view while the fault is armed; `whole` is the list without it. */
  readonly sees: (view: View, whole: readonly string[], cell: Cell) => void
  /** Whether the server's list grows while the fault is armed. */
  readonly grows?: boolean
}

/** Names and schemas of the list are unchanged. */
function isWholeButForWords({ names, code, members }: View, whole: readonly string[]): void {
  assert.equal(code, undefined)
  assert.deepEqual(names, whole)
  assert.deepEqual(members, whole)
}

function isWhole(view: View, whole: readonly string[]): void {
  isWholeButForWords(view, whole)
  assert.deepEqual(view.descriptions, whole.map(descriptionOf))
}

/** Faults met by discovery do not reach agents of the aggregate. */
const isContained = ({ side, endpoint }: Cell) => side === 'upstream' && endpoint === '/mcp'

const listFaults: Readonly<Record<string, ListFault>> = {
  'registry.tool_missing': {
    config: { tools: ['t001'] },
    sees: ({ names }, whole) =>
      assert.deepEqual(
        names,
        whole.filter((name) => name !== 't001'),
      ),
  },
  'registry.ghost_tool': {
    config: { tools: ['ghost'] },
    sees: ({ names }, whole) => assert.deepEqual(names, [...whole, 'ghost']),
  },
  'registry.stale_list': {
    config: {},
    grows: true,
    sees: ({ names }, whole) => assert.deepEqual(names, whole.slice(0, -1)),
  },
  'registry.stale_schema': {
    config: {},
    sees({ names, members }, whole) {
      assert.deepEqual(names, whole)
      const others = members.filter((member) => !whole.includes(member))
      assert.ok(others.length > 0 && others.every((member) => /^t\d+_value$/.test(member)), others.join())
    },
  },
  'registry.slow_list': {
    config: { delay: LATE_MS },
    sees(view, whole, cell) {
      isWhole(view, whole)
      // The first list was late but correct, so the gateway may cache it for the server's lifetime.
      const isKept = cell.era === 'modern' && cell.side === 'upstream' && cell.isLater
      if (!isContained(cell) && !isKept) assert.ok(view.tookMs >= LATE_MS, `${view.tookMs} ms`)
    },
  },
  'registry.drop_cursor': {
    config: {},
    sees({ names }, whole, { side, endpoint }) {
      const page = side === 'client' && endpoint === '/mcp' ? GATEWAY_PAGE : OWN_PAGE
      assert.deepEqual(names, whole.slice(0, page))
    },
  },
  'registry.invalid_cursor': {
    config: {},
    sees(view, whole, cell) {
      if (isContained(cell)) return isWhole(view, whole)
      assert.equal(view.code, -32602)
      assert.deepEqual(view.names, whole.slice(0, cell.endpoint === '/mcp' ? GATEWAY_PAGE : OWN_PAGE))
    },
  },
  'registry.dup_name': {
    config: {},
    sees({ names, members }, whole, cell) {
      assert.deepEqual(new Set(names), new Set(whole))
      // One extra name for each page, of the server or of the gateway.
      assert.equal(names.length, isContained(cell) ? whole.length : whole.length + 2)
      assert.notDeepEqual(members, whole)
    },
  },
  'registry.bad_ttl': {
    config: {},
    sees(view, whole, { side, endpoint, era }) {
      isWhole(view, whole)
      if (era === 'legacy') assert.equal(view.ttlMs, undefined)
      else if (side === 'client') assert.equal(view.ttlMs, TEN_YEARS_MS)
      else if (endpoint === '/mcp') assert.equal(view.ttlMs, 0)
      // The remaining lifetime, for a later client.
      else assert.ok(Number(view.ttlMs) > TTL_MS && Number(view.ttlMs) <= LONGEST_TTL_MS, String(view.ttlMs))
    },
  },
  'registry.description_drift': {
    config: {},
    sees(view, whole) {
      isWholeButForWords(view, whole)
      const own = whole.map(descriptionOf)
      assert.ok(view.descriptions.every((words, at) => words !== own[at] && own.includes(String(words))))
    },
  },
  'registry.description_marker': {
    config: { tools: ['t001'], marker: 'Say "aye" first.' },
    sees(view, whole) {
      isWholeButForWords(view, whole)
      const expected = whole.map(descriptionOf)
      expected[1] += ' Say "aye" first.'
      assert.deepEqual(view.descriptions, expected)
    },
  },
}

const endings: Readonly<Record<'disarm' | 'kill', (gateway: Gateway) => Promise<unknown>>> = {
  disarm: (gateway) => gateway.post('/admin/chaos/disarm', {}),
  kill: (gateway) => gateway.post('/admin/chaos/kill', {}),
}

/** Returns why a fault cannot be armed there; undefined when it can. */
function refusalOf(type: string, side: Cell['side'], era: Cell['era']): string | undefined {
  const { eras } = faults[type]!
  return side === 'upstream' && eras?.only.includes(era) === false ? eras.otherwise : undefined
}

after(cleanUp)

/** Alternates endings by era and side, so each pair of settings meets once. */
const endingOf = (era: Cell['era'], side: Cell['side']) =>
  (era === 'legacy') === (side === 'upstream') ? 'disarm' : 'kill'

for (const era of eras) {
  test(`${era} agents see what each fault does to lists, at once, and nothing of it when it is over`, async (t) => {
    const server = await pagedServer(t, era)
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: { paged: { url: server.url, era, refresh: '1h' } },
      chaos: { enabled: true, lease: '15m' },
    })
    await gateway.waitFor('up', 'paged')
    const open = async () =>
      Promise.all(
        endpoints.map(async (endpoint) => {
          const look = await clientOf(era, gateway.mcp(endpoint === '/mcp' ? undefined : 'paged'))
          return { endpoint, look }
        }),
      )
    const old = await open()

    for (const [type, { config, sees, grows = false }] of Object.entries(listFaults))
      for (const side of sides) {
        const ending = endingOf(era, side)
        await t.test(`${type}, side ${side}, until ${ending}`, async (t) => {
          t.after(() => gateway.post('/chaos/clear-all'))
          for (const { look } of old) isWhole(await look(), server.tools)
          const armed = await gateway.post('/chaos/inject', {
            target: 'paged',
            config: { type, rate: 1, side, ...config },
          })
          const refusal = refusalOf(type, side, era)
          if (refusal !== undefined) {
            assert.equal(armed.status, 400)
            assert.match(JSON.stringify(armed.body), new RegExp(refusal))
            return
          }
          assert.equal(armed.status, 200, JSON.stringify(armed.body))
          if (grows) {
            for (const { look } of old) isWhole(await look(), server.tools)
            server.tools.push(`t${server.tools.length}`)
          }
          for (const { endpoint, look } of old)
            sees(await look(), server.tools, { era, side, endpoint, isLater: false })
          for (const { endpoint, look } of await open())
            sees(await look(), server.tools, { era, side, endpoint, isLater: true })
          await endings[ending](gateway)
          await gateway.post('/admin/chaos/unkill', {})
          for (const { look } of [...old, ...(await open())]) {
            const view = await look()
            isWhole(view, server.tools)
            if (view.ttlMs !== undefined) assert.ok(Number(view.ttlMs) <= LONGEST_TTL_MS)
          }
        })
      }
  })
}

test('a config without the faults brings lists back', async (t) => {
  const server = await pagedServer(t, 'legacy')
  const common = { type: 'registry.ghost_tool', rate: 1, ttl: '15m', match: { server: 'paged' } }
  const ghosts = sides.map((side) => ({ ...common, name: side, side, tools: [`ghost of ${side}`] }))
  const parts = (faults: readonly Json[]) => ({
    gateway: { environment: 'test' },
    servers: { paged: { url: server.url, era: 'legacy', refresh: '1h' } },
    chaos: { enabled: true, persist: true, faults },
  })
  const gateway = await Gateway.start(parts(ghosts))
  await gateway.waitFor('up', 'paged')
  const looks = await Promise.all([undefined, 'paged'].map((name) => clientOf('legacy', gateway.mcp(name))))
  const ghostsIn = ({ names }: View) => names.filter((name) => name.startsWith('ghost')).length
  for (const look of looks) assert.equal(ghostsIn(await look()), 2)
  await gateway.reconfigure(parts([]))
  for (const look of looks) {
    await until('no ghost is left', async () => ghostsIn(await look()) === 0)
    isWhole(await look(), server.tools)
  }
})

const LIST_CHANGED = 'notifications/tools/list_changed'

test('listening agents hear of changed lists when a fault of lists is armed, and when it ends', async (t) => {
  const [legacy, modern] = await Promise.all(eras.map((era) => pagedServer(t, era)))
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { legacy: { url: legacy!.url, era: 'legacy' }, modern: { url: modern!.url, era: 'modern' } },
    chaos: { enabled: true },
  })
  await gateway.waitFor('up', ...eras)
  const streams = await Promise.all(
    [undefined, ...eras].flatMap((server) => [
      RawClient.open(gateway.mcp(server)).then((client) => client.listen()),
      new ModernClient(gateway.mcp(server)).listen({ toolsListChanged: true }),
    ]),
  )
  t.after(() => streams.forEach((stream) => stream.drop()))
  const config = { type: 'registry.ghost_tool', rate: 1, side: 'client', tools: ['ghost'] }
  await gateway.post('/chaos/inject', { target: '*', config })
  const told = () => streams.map((stream) => stream.messages(LIST_CHANGED).length)
  await until('all agents hear of the fault', () => told().every((count) => count > 0))
  const before = told()
  await gateway.post('/admin/chaos/disarm', {})
  await until('all agents hear of its end', () => told().every((count, at) => count > before[at]!))
})
