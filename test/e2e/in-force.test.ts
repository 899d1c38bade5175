import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './support/gateway.ts'
import { keyedWrite } from './support/keyed-write.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson, type Seen, sendResult } from './support/raw-server.ts'

after(cleanUp)
after(closeServers)

const inherited = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'prototype']

test('servers, tools and arguments may have names every object inherits', async () => {
  const properties = Object.fromEntries(inherited.map((name) => [name, { type: 'string' }]))
  const tools = inherited.map((name) => ({
    name,
    inputSchema: { type: 'object', properties, additionalProperties: false },
  }))
  const raw = await RawServer.start(({ message: { id, method, params } }, response) => {
    if (method !== 'tools/list' && method !== 'tools/call') return false
    const said = () => [{ type: 'text', text: JSON.stringify((params as Json).arguments) }]
    const result = method === 'tools/list' ? { tools } : { content: said() }
    return sendResult(response, id, result)
  })
  const servers = ['constructor', 'toString', 'hasOwnProperty', 'prototype']
  const gateway = await Gateway.start({
    servers: Object.fromEntries(servers.map((name) => [name, { url: raw.url }])),
    policies: { defaults: { arguments: { check: 'enforce' }, breaker: {} } },
  })
  await gateway.waitFor('up', ...servers)
  const client = await RawClient.open(gateway.mcp())
  for (const server of servers)
    for (const tool of inherited) {
      const call = (args: string) =>
        client.post(
          `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${server}__${tool}","arguments":${args}}}`,
        )
      const answers = []
      for (const args of ['{}', ...inherited.map((name) => `{"${name}":"x"}`)]) answers.push(await call(args))
      for (const { text } of answers) assert.match(text, /"result"/, `${server} ${tool} ${text}`)
    }
  assert.equal((await gateway.admin('/admin/mesh')).status, 200)
  assert.equal((await gateway.admin('/admin/servers/constructor')).status, 200)
  assert.equal((await gateway.admin('/admin/servers/valueOf')).status, 404)
  assert.equal((await gateway.post('/admin/breakers/constructor/__proto__', { action: 'open' })).status, 200)
  assert.match(JSON.stringify(await client.call('constructor____proto__')), /BW_BREAKER_OPEN/)
  await client.say('toString____proto__')
})

async function configInfo(gateway: Gateway): Promise<string[]> {
  const text = await (await fetch(`${gateway.control}/metrics`)).text()
  return text.split('\n').filter((line) => line.startsWith('breakwater_config_info{'))
}

test('config_info describes the config in force: with added servers, and with boot-time keys', async () => {
  const raw = await RawServer.start(() => false)
  const parts = (gateway: Json): GatewayParts => ({ servers: { raw: { url: raw.url } }, gateway })
  const gateway = await Gateway.start(parts({}))
  const shown = async () => {
    const { hash } = (await gateway.admin('/admin/config')).body
    assert.deepEqual(await configInfo(gateway), [`breakwater_config_info{hash="${String(hash)}"} 1`])
    return hash
  }
  const first = await shown()
  await gateway.post('/admin/servers', { name: 'added', server: { url: raw.url } })
  const second = await shown()
  assert.notEqual(second, first)
  await gateway.reconfigure(parts({ separator: '--' }))
  assert.deepEqual((await gateway.post('/admin/reload')).body.needsRestart, ['gateway.separator'])
  assert.equal(await shown(), second)
  await gateway.admin('/admin/servers/added', { method: 'DELETE' })
  assert.equal(await shown(), first)
})

test('only a change of the block `chaos` affects armed faults', async () => {
  const raw = await RawServer.start(() => false, ['read', 'write'])
  const fault = (tool: string) => ({
    name: `refused-${tool}`,
    type: 'conn.refused',
    rate: 1,
    ttl: '10m',
    match: { tool },
    allowWrites: true,
  })
  const parts = (servers: Json, seed = 1): GatewayParts => ({
    servers: { raw: { url: raw.url }, ...servers },
    gateway: { environment: 'test' },
    chaos: { enabled: true, persist: true, seed, faults: [fault('read')] },
  })
  const gateway = await Gateway.start(parts({}))
  await gateway.waitFor('up', 'raw')
  const armed = async () => {
    const { state, faults } = (await gateway.admin('/admin/chaos')).body as {
      state: string
      faults: { name: string; armed: boolean }[]
    }
    return [state, ...faults.flatMap((each) => (each.armed ? [each.name] : []))]
  }
  assert.deepEqual(await armed(), ['armed', 'refused-read'])
  const put = await gateway.admin('/admin/chaos', {
    method: 'PUT',
    body: JSON.stringify({ faults: [fault('write')] }),
    headers: { 'content-type': 'application/json' },
  })
  assert.equal(put.status, 200)
  const mine = ['armed', 'refused-write']
  assert.deepEqual(await armed(), mine)
  const since = async () =>
    JSON.stringify((await gateway.admin('/admin/chaos')).body.faults).match(/"since":[^,]*/)?.[0]
  const before = await since()
  await gateway.post('/admin/servers', { name: 'added', server: { url: raw.url } })
  assert.deepEqual(await armed(), mine)
  await gateway.post('/admin/servers/raw/restart')
  await gateway.post('/admin/reload')
  await gateway.reconfigure(parts({ another: { url: raw.url } }))
  await gateway.post('/admin/reload')
  await gateway.admin('/admin/servers/added', { method: 'DELETE' })
  assert.deepEqual(await armed(), mine)
  assert.equal(await since(), before)
  await gateway.post('/admin/chaos/disarm', {})
  await gateway.post('/admin/reload')
  assert.deepEqual(await armed(), ['disarmed'])
  await gateway.reconfigure(parts({}, 2))
  await gateway.post('/admin/reload')
  assert.deepEqual((await gateway.admin('/admin/chaos')).body.seed, 2)
})

/** A server whose writes end on request of the test. */
async function slowWriter() {
  const held: { seen: Seen; response: ServerResponse }[] = []
  const raw = await RawServer.start(
    (seen, response) => {
      if (seen.message.method !== 'tools/call') return false
      held.push({ seen, response })
      return true
    },
    ['write'],
  )
  const finish = () => {
    for (const { seen, response } of held.splice(0))
      sendJson(
        response,
        JSON.stringify({
          jsonrpc: '2.0',
          id: seen.message.id,
          result: { content: [{ type: 'text', text: 'written' }] },
        }),
      )
  }
  return { raw, held, finish }
}

/** Calls under a key, and leaves once the server has the call. */
async function leaveBehind(gateway: Gateway, held: readonly unknown[]): Promise<void> {
  const client = await RawClient.open(gateway.mcp('raw'))
  const leaving = new AbortController()
  const params = { name: 'write', arguments: { text: 'a' }, _meta: { 'dev.breakwater/idempotency-key': 'k' } }
  const call = fetch(client.url, {
    method: 'POST',
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    headers: {
      ...client.headers,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    signal: leaving.signal,
  }).catch((error: unknown) => error)
  await until('the server has the call', () => held.length === 1)
  await client.post({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } })
  leaving.abort()
  await call
  await gateway.waitForCalls(0)
}

test('the end of the process waits for a call with a key whose agent has left', async () => {
  const { raw, held, finish } = await slowWriter()
  const gateway = await Gateway.start({ servers: { raw: { url: raw.url } }, gateway: { drain: '30s' } })
  await gateway.waitFor('up', 'raw')
  await leaveBehind(gateway, held)
  gateway.program.signal('SIGTERM')
  const stopping = await gateway.program.line('it is stopping', (line) =>
    line.includes('"stopping') ? (JSON.parse(line) as Json) : undefined,
  )
  assert.deepEqual([stopping.inFlight, stopping.detached], [0, 1])
  assert.equal(
    gateway.program.lines.some((line) => line.includes('"stopped"')),
    false,
  )
  finish()
  assert.deepEqual(await gateway.program.ended, { code: 0, signal: null })
  assert.equal(
    gateway.program.lines.some((line) => line.includes('the drain is over')),
    false,
  )
})

test('a call with a key whose agent has left goes on when its server is made anew, and its answer is kept', async () => {
  const { raw, held, finish } = await slowWriter()
  const parts = (more: Json): GatewayParts => ({ servers: { raw: { url: raw.url, ...more } } })
  const gateway = await Gateway.start(parts({}))
  await gateway.waitFor('up', 'raw')
  await leaveBehind(gateway, held)
  await gateway.reconfigure(parts({ connections: 3 }))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  await gateway.waitFor('up', 'raw')
  const again = keyedWrite(gateway.mcp('raw'), 'k')
  finish()
  assert.match(JSON.stringify(await again), /"written"/)
  assert.equal(raw.of('tools/call').length, 1)
})
