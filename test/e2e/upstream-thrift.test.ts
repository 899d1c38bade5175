import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { until } from '../support/until.ts'
import { Agent, talliesOf, type Told } from './support/agent.ts'
import { CountingServer } from './support/counting.ts'
import { cleanUp, configText, Gateway } from './support/gateway.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

after(async () => {
  await cleanUp()
  closeServers()
})

const WATCHED_MS = 3_000

test('the gateway does not loop when a server asks for an immediate retry of its broken stream', async (t) => {
  const server = await RawServer.start(
    ({ verb, message }, response) => {
      if (verb !== 'GET' && message.method !== 'tools/call') return false
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end('id: 1\nretry: 0\ndata:\n\n')
      return true
    },
    ['write'],
  )
  const gateway = await Gateway.start({ servers: { raw: { url: server.url, era: 'legacy' } } })
  await gateway.waitFor('up', 'raw')
  const gets = () => server.seen.filter(({ verb }) => verb === 'GET').length
  const seen: Record<string, number> = {}
  // The gateway itself listens too.
  const before = gets()
  await setTimeout(WATCHED_MS)
  seen.listening = gets() - before
  const agent = await Agent.open('legacy', gateway.mcp('raw'))
  const called = gets()
  const call = agent.call(
    'write',
    { token: 'a' },
    { headers: { 'x-breakwater-deadline-ms': `${WATCHED_MS}` } },
  )
  await setTimeout(WATCHED_MS)
  seen.calling = gets() - called - seen.listening
  t.diagnostic(`GETs in ${WATCHED_MS} ms: ${JSON.stringify(seen)}`)
  assert.ok(seen.listening < 50, `${seen.listening} GETs of a listener`)
  assert.ok(seen.calling < 50, `${seen.calling} GETs for one call`)
  await call
})

const RELOADS = 60
const SESSIONS = 5

test(`${RELOADS} rapid reloads leave no session behind at the server`, async (t) => {
  const server = await CountingServer.start('legacy')
  // A session still opening at the end of its generation is easily forgotten.
  await server.slow(0, 20)
  const parts = (nth: number) => ({
    servers: { edited: { url: server.urls[0], era: 'legacy', headers: { 'x-edit': `${nth}` } } },
  })
  const gateway = await Gateway.start(parts(0))
  await gateway.waitFor('up', 'edited')
  const open = (era: 'legacy' | 'modern') => Agent.open(era, gateway.mcp('edited'))
  const agents = await Promise.all([
    ...Array.from({ length: SESSIONS }, () => open('legacy')),
    open('modern'),
  ])
  // One extra session is the gateway's own.
  const inUse = agents.length + 1
  const told: Told[] = []
  let stopped = false
  const loops = agents.map(async (agent) => {
    for (let nth = 0; !stopped; nth++) {
      told.push(await agent.call('write', { token: `${nth}` }))
      await setTimeout(5)
    }
  })
  for (let nth = 1; nth <= RELOADS; nth++) {
    await writeFile(gateway.file, configText(parts(nth)))
    assert.equal((await gateway.post('/admin/reload')).status, 200)
  }
  stopped = true
  await Promise.all(loops)
  const sessions = async () => (await server.stats())[0]?.sessions ?? 0
  const after = await sessions()
  await until('the sessions of old generations end', async () => (await sessions()) <= inUse).catch(
    () => undefined,
  )
  const [stats] = await server.stats()
  const opened = Object.values(stats?.initialized ?? {}).reduce((sum, count) => sum + count, 0)
  const report =
    `${inUse} in use; ${opened} opened, ${stats?.deleted ?? 0} ended, ${after} open after the last reload, ${await sessions()} in the end; ` +
    `calls: ${JSON.stringify(talliesOf(told))}`
  t.diagnostic(report)
  assert.ok((await sessions()) <= inUse, report)
  for (const agent of agents) assert.equal((await agent.call('write', { token: 'last' })).kind, 'result')
})
