import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { closeListings, Listings, namesOf } from '../support/listings.ts'
import { ModernClient } from '../support/modern-client.ts'
import { Program } from '../support/program.ts'
import { closeClients, connect } from '../support/sdk-client.ts'
import { httpShop, stdioShop } from '../support/shop.ts'
import { HttpToolbox } from '../support/toolbox.ts'

const strictServer = fileURLToPath(new URL('../../fixtures/modern-extras.js', import.meta.url))
const first = ['echo', 'env', 'pid', 'session']
const tools = ['typed_order', 'words_story']

let listings: Listings

before(async () => {
  const strict = new Program([strictServer])
  const [pages, changing, stormy, shop, strictUrl] = await Promise.all([
    HttpToolbox.start({ TOOLBOX_PAGE: String(first.length) }),
    HttpToolbox.start(),
    HttpToolbox.start(),
    httpShop(tools),
    strict.line('the strict server listens', (line) => /^listening (\S+)$/.exec(line)?.[1]),
  ])
  listings = await Listings.start(
    {
      stale: { url: changing.url },
      slow: { url: changing.url, timeouts: { discovery: '300ms' } },
      short: { url: pages.url },
      invalid: { url: strictUrl, era: 'modern' },
      twins: { ...stdioShop(tools), era: 'legacy' },
      ttl: { url: shop, era: 'modern' },
      storm: { url: stormy.url },
    },
    {
      stale: { type: 'registry.stale_list' },
      slow: { type: 'registry.slow_list', delay: '500ms' },
      short: { type: 'registry.drop_cursor' },
      invalid: { type: 'registry.invalid_cursor' },
      twins: { type: 'registry.dup_name' },
      ttl: { type: 'registry.bad_ttl' },
      storm: { type: 'registry.list_changed_storm', perSecond: 500, duration: '1s', maxInjections: 1 },
    },
  )
})
after(async () => {
  await closeClients()
  await closeListings()
})

test('registry.slow_list: what comes too late for discovery leaves the last-known list in place', async () => {
  await listings.gateway.waitFor('down', 'slow')
  for (const names of await listings.among('slow')) assert.deepEqual(names, listings.normal('slow'))
  const since = performance.now()
  await listings.own('slow')[0]!.tools()
  assert.ok(performance.now() - since >= 490)
  assert.equal(await listings.call('slow', 'echo', { text: 'still there' }), 'still there')
})

test('registry.stale_list: a tool that came since is not listed, and can be called', async () => {
  await listings.sees('stale', (names) => names)
  await listings.call('stale', 'add', { name: 'late' })
  await listings.isHit('stale')
  await listings.sees('stale', (names) => names)
})

test('registry.drop_cursor: without its cursor a list is its first page', async () => {
  await listings.sees('short', () => first)
  assert.ok(listings.normal('short').length > first.length)
  assert.equal(await listings.call('short', 'add', { name: 'more' }), 'added')
})

test('registry.invalid_cursor: who follows the cursor is refused; the last-known list is there for others', async () => {
  await listings.gateway.waitFor('down', 'invalid')
  await assert.rejects(namesOf(listings.own('invalid')[0]!), /Invalid cursor/)
  for (const names of await listings.among('invalid')) assert.deepEqual(names, listings.normal('invalid'))
})

test('registry.dup_name: among all, a name stands once, with what another tool says of itself', async () => {
  await listings.isHit('twins')
  for (const names of await listings.among('twins')) assert.deepEqual(names, listings.normal('twins'))
  const { tools: all } = await (await connect(listings.gateway.mcp())).listTools()
  const words = all.filter(({ name }) => name.startsWith('twins__')).map(({ description }) => description)
  assert.equal(new Set(words).size, words.length - 1)
})

test('registry.bad_ttl: among all, a list holds for minutes at most', async () => {
  await listings.isHit('ttl')
  await listings.sees('ttl', (names) => names)
  const { messages } = await new ModernClient(listings.gateway.mcp()).ask('tools/list')
  const { ttlMs } = messages[0]?.result as { ttlMs: number }
  assert.ok(ttlMs <= 300_000, `${ttlMs} ms`)
})

test('registry.list_changed_storm: hundreds of notifications make a handful of fetches, and agents hear of as few', async () => {
  await listings.isHit('storm')
  await listings.sees('storm', (names) => names)
  const received = (await listings.call('storm', 'received')).split(',')
  const fetched = received.filter((method) => method === 'tools/list').length
  assert.ok(fetched < 50, `${fetched} times`)
  for (const { told } of [...listings.own('storm'), ...listings.all])
    assert.ok(told.length < 50, `${told.length} times`)
})

test('what discovery meets of a fault is counted, and apart from what agents meet of it', async () => {
  const { gateway } = listings
  type Status = { faults: { name: string; injected: number; discovery: { injected: number } }[] }
  for (const fault of ['stale', 'short', 'twins', 'ttl']) {
    await until(`all that ${fault} did is counted`, async () => {
      const { body } = await gateway.admin<Status>('/admin/chaos')
      const { injected = 0, discovery } = body.faults.find(({ name }) => name === fault) ?? {}
      assert.ok(discovery !== undefined && discovery.injected > 0)
      const metric = async (name: string) => (await gateway.metric(name, `fault="${fault}"`)) ?? 0
      const ofAgents = await metric('breakwater_faults_injected_total')
      const ofDiscovery = await metric('breakwater_discovery_faults_injected_total')
      return ofAgents === injected && ofDiscovery === discovery.injected
    })
  }
})

test('the kill switch brings all lists back', async () => {
  const later: Readonly<Record<string, string>> = { stale: 'late', slow: 'late', short: 'more' }
  listings.gateway.program.signal('SIGUSR2')
  await listings.gateway.waitFor('up', ...listings.servers)
  for (const server of listings.servers)
    await listings.sees(server, (names) => [...names, ...(server in later ? [later[server]!] : [])])
})
