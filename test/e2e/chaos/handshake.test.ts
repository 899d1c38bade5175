import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../support/raw-server.ts'

const program = fileURLToPath(new URL('../../fixtures/staged-server.js', import.meta.url))

/** Each fault has a server of its own, which is named after it. */
const faults: Readonly<Record<string, Json>> = {
  refused: { type: 'initialize.refused', code: -32099, message: 'Not now' },
  hanging: { type: 'initialize.hang' },
  outdated: { type: 'initialize.version' },
  incapable: { type: 'initialize.no_capabilities' },
  silent: { type: 'ping.unanswered' },
  puzzled: { type: 'ping.error' },
  modern: { type: 'initialize.refused', message: 'Not now' },
  ancient: { type: 'initialize.version' },
  piped: { type: 'initialize.refused', message: 'Not now' },
}
const eras: Readonly<Record<string, string>> = { modern: 'modern', ancient: 'modern' }
const servers: Record<string, RawServer> = {}

let gateway: Gateway

before(async () => {
  for (const name of Object.keys(faults).filter((one) => one !== 'piped')) {
    servers[name] = await RawServer.start(
      ({ message }, response) => {
        const { id, method } = message
        if (method === 'server/discover') {
          const result = {
            supportedVersions: ['2026-07-28'],
            capabilities: { tools: {} },
            serverInfo: { name: 'raw', version: '1.0.0' },
            resultType: 'complete',
          }
          sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
          return true
        }
        if (method !== 'tools/call') return false
        const result = { content: [{ type: 'text', text: 'done' }] }
        sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
        return true
      },
      ['work'],
    )
  }
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: {
      ...Object.fromEntries(
        Object.entries(servers).map(([name, { url }]) => [
          name,
          { url, era: eras[name] ?? 'legacy', timeouts: { discovery: '400ms' }, health: { every: '1s' } },
        ]),
      ),
      piped: { command: process.execPath, args: [program, 'stdio', 'work'], era: 'legacy' },
    },
    policies: { defaults: { retry: false } },
    chaos: {
      enabled: true,
      persist: true,
      faults: Object.entries(faults).map(([name, more]) => ({
        name,
        rate: 1,
        ttl: '10m',
        match: { server: name },
        ...more,
      })),
    },
  })
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Handshakes and pings are questions of the gateway's own. */
async function hits(fault: string): Promise<number> {
  type Faults = { faults: { name: string; discovery: { hits: number } }[] }
  const { body } = await gateway.admin<Faults>('/admin/chaos')
  return body.faults.find(({ name }) => name === fault)?.discovery.hits ?? 0
}

/** What an agent gets that greets a server, and then calls a tool of it. */
async function call(server: string): Promise<{ readonly reason: unknown; readonly said: string }> {
  const client = await RawClient.open(gateway.mcp(server))
  const response = 'error' in client.welcome ? client.welcome : await client.call('work')
  const error = response.error as Json | undefined
  return { reason: (error?.data as Json | undefined)?.reason, said: JSON.stringify(response) }
}

for (const server of ['refused', 'modern'])
  test(`initialize.refused: no handshake reaches the server, and no call (${server})`, async () => {
    await gateway.waitFor('down', server)
    const { reason, said } = await call(server)
    assert.equal(reason, 'upstream_refused', said)
    assert.match(said, /Not now/)
    for (const method of ['initialize', 'server/discover', 'tools/call'])
      assert.equal(servers[server]!.of(method).length, 0, method)
    assert.ok((await hits(server)) > 0)
  })

test('initialize.refused: a process that refuses it is ended, and started again later', async () => {
  await gateway.waitFor('down', 'piped')
  const { reason, said } = await call('piped')
  assert.ok(reason === 'upstream_refused' || reason === 'upstream_unavailable', said)
  await until('it was refused again', async () => (await hits('piped')) > 1)
})

test('initialize.hang: the server gets the handshake, and its answer comes too late for all', async () => {
  await gateway.waitFor('down', 'hanging')
  const { reason, said } = await call('hanging')
  assert.equal(reason, 'attempt_timeout', said)
  assert.ok(servers.hanging!.of('initialize').length > 0)
  assert.equal(servers.hanging!.of('tools/call').length, 0)
})

test('initialize.version: nothing goes on in a version that the gateway does not know', async () => {
  for (const server of ['outdated', 'ancient']) {
    await gateway.waitFor('down', server)
    const { reason, said } = await call(server)
    assert.equal(reason, 'upstream_refused', said)
    assert.equal(servers[server]!.of('tools/call').length, 0)
  }
})

test('initialize.no_capabilities: a server that says that it can do nothing lists no tools', async () => {
  await gateway.waitFor('up', 'incapable', 'puzzled')
  const own = await RawClient.open(gateway.mcp('incapable'))
  const { capabilities } = own.welcome.result as { capabilities: Json }
  assert.equal('tools' in capabilities, false)
  const all = await RawClient.open(gateway.mcp())
  const { result } = await all.request('tools/list')
  const names = (result as { tools: { name: string }[] }).tools.map(({ name }) => name)
  assert.ok(names.includes('puzzled__work'), names.join())
  assert.ok(!names.includes('incapable__work'), names.join())
  assert.equal(servers.incapable!.of('tools/list').length, 0)
})

test('ping.unanswered: the server gets pings and counts as down; calls of it go through', async () => {
  await gateway.waitFor('down', 'silent')
  assert.ok(servers.silent!.of('ping').length > 0)
  const { reason, said } = await call('silent')
  assert.equal(reason, undefined, said)
  assert.match(said, /done/)
})

test('ping.error: an error is a sign of life', async () => {
  await until('some pings were hit', async () => (await hits('puzzled')) > 2)
  await gateway.waitFor('up', 'puzzled')
  assert.equal(servers.puzzled!.of('ping').length, 0)
})

test('once all is stopped, handshakes succeed again', async () => {
  gateway.program.signal('SIGUSR2')
  await gateway.waitFor('up', ...Object.keys(faults))
  for (const server of ['refused', 'hanging', 'outdated', 'piped'])
    assert.match((await call(server)).said, /done|work 1/)
})
