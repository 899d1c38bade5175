import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { closeListings, Listings } from '../support/listings.ts'
import { closeClients, connect } from '../support/sdk-client.ts'
import { httpShop, stdioShop } from '../support/shop.ts'
import { HttpToolbox, stdioToolbox } from '../support/toolbox.ts'

// No tool of these servers is known to only read: faults that keep calls from them need no leave.
const missing = (...tools: string[]) => ({ type: 'registry.tool_missing', tools, allowWrites: false })
const ghost = { type: 'registry.ghost_tool', tools: ['ghost'], allowWrites: false }
const schema = { type: 'registry.stale_schema', tools: ['typed_*'] }
const tools = ['typed_order', 'words_story']

let listings: Listings

before(async () => {
  const [toolbox, shop] = await Promise.all([HttpToolbox.start(), httpShop(tools)])
  const modern = { url: shop, era: 'modern' }
  listings = await Listings.start(
    {
      missing_http: { url: toolbox.url },
      missing_stdio: stdioToolbox(),
      missing_modern: modern,
      ghost_http: { url: toolbox.url },
      ghost_modern: modern,
      schema_legacy: { ...stdioShop(tools), era: 'legacy' },
      schema_modern: modern,
    },
    {
      missing_http: missing('ec*'),
      missing_stdio: missing('ec*'),
      missing_modern: missing('words_*'),
      ghost_http: ghost,
      ghost_modern: ghost,
      schema_legacy: schema,
      schema_modern: schema,
    },
  )
})
after(async () => {
  await closeClients()
  await closeListings()
})

const unknown = (error: { code?: unknown }) => error.code === -32602

for (const [server, gone] of [
  ['missing_http', 'echo'],
  ['missing_stdio', 'echo'],
  ['missing_modern', 'words_story'],
] as const) {
  test(`registry.tool_missing: ${server}: a tool is gone from all lists, and a call of it is refused`, async () => {
    await listings.sees(server, (names) => names.filter((name) => name !== gone))
    for (const agent of listings.own(server)) await assert.rejects(agent.call(gone), unknown)
    for (const agent of listings.all) await assert.rejects(agent.call(`${server}__${gone}`), unknown)
    const surfaced = `fault="${server}",fate="surfaced"`
    const fates = await listings.gateway.metric('breakwater_fault_outcomes_total', surfaced)
    assert.ok((fates ?? 0) >= 4, String(fates))
  })
}

for (const server of ['ghost_http', 'ghost_modern']) {
  test(`registry.ghost_tool: ${server}: a tool is listed that is not there, and a call of it is refused`, async () => {
    await listings.sees(server, (names) => [...names, 'ghost'])
    for (const agent of listings.own(server)) await assert.rejects(agent.call('ghost'), unknown)
    for (const agent of listings.all) await assert.rejects(agent.call(`${server}__ghost`), unknown)
  })
}

for (const server of ['schema_legacy', 'schema_modern']) {
  /** Names of all members of the tool's schemas, on its own endpoint and on that of all. */
  async function members(): Promise<string[][]> {
    const places = [
      [listings.gateway.mcp(server), 'typed_order'],
      [listings.gateway.mcp(), `${server}__typed_order`],
    ] as const
    return Promise.all(
      places.map(async ([url, listed]) => {
        const { tools: all } = await (await connect(url)).listTools()
        const { inputSchema, outputSchema } = all.find(({ name }) => name === listed)!
        return Object.keys({ ...inputSchema.properties, ...outputSchema?.properties })
      }),
    )
  }

  test(`registry.stale_schema: ${server}: a member of a schema has the name of yesterday`, async () => {
    await listings.isHit(server)
    const isOld = (name: string) => name === 'orderId' || name.endsWith('_value')
    for (const names of await members()) assert.equal(names.filter(isOld).length, 1, names.join())
  })
}

test('taking the faults away in the config brings all lists back', async () => {
  await listings.arm(false)
  for (const server of listings.servers) await listings.sees(server, (names) => names)
  const schemas = (await listings.all[0]!.tools()).map(({ outputSchema }) =>
    JSON.stringify(outputSchema ?? ''),
  )
  assert.ok(schemas.every((text) => !text.includes('_value')))
})
