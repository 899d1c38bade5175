import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { text } from 'node:stream/consumers'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

let gateway: Gateway
let client: RawClient

before(async () => {
  const remote = await HttpToolbox.start()
  gateway = await Gateway.start({
    servers: {
      local: stdioToolbox({ tools: { exclude: ['crash'] } }),
      remote: { url: remote.url },
      dead: { url: 'http://127.0.0.1:9/mcp' },
    },
  })
  await gateway.waitFor('up', 'local', 'remote')
  await gateway.waitFor('down', 'dead')
  client = await RawClient.open(gateway.mcp())
})
after(cleanUp)

test('the registry lists every server with its state, and shows all offers of a single server', async () => {
  const { body } = await gateway.admin<Json[]>('/admin/servers')
  assert.deepEqual(
    body.map(({ name, type, from, state }) => ({ name, type, from, state })),
    [
      { name: 'local', type: 'stdio', from: 'config', state: 'up' },
      { name: 'remote', type: 'http', from: 'config', state: 'up' },
      { name: 'dead', type: 'http', from: 'config', state: 'down' },
    ],
  )
  assert.equal(body[2]?.reason, 'upstream_unavailable')
  const local = (await gateway.server('local')) as { tools: { key: string; fingerprint: string }[] } & Json
  assert.deepEqual(local.serverInfo, { name: 'toolbox', version: '1.0.0' })
  assert.ok(local.tools.some(({ key, fingerprint }) => key === 'echo' && /^[0-9a-f]{16}$/.test(fingerprint)))
  assert.ok(!local.tools.some(({ key }) => key === 'crash'))
  const unknown = await gateway.admin('/admin/servers/nobody')
  assert.equal(unknown.status, 404)
  assert.deepEqual(unknown.body.servers, ['local', 'remote', 'dead'])
})

test('the control plane shows sessions without their secret ids', async () => {
  const { body } = await gateway.admin<{ open: number; sessions: Json[] }>('/admin/sessions')
  assert.equal(body.open, 1)
  assert.equal(body.sessions[0]?.endpoint, '/mcp')
  assert.deepEqual(body.sessions[0]?.client, { name: 'raw', version: '1' })
  assert.ok(!JSON.stringify(body).includes(client.session))
})

test('a server that is restarted gets a new process; sessions and other servers go on', async () => {
  const one = await RawClient.open(gateway.mcp('local'))
  const [pid, session] = [Number(await one.say('pid')), await client.say('remote__session')]
  const { status } = await gateway.post('/admin/servers/local/restart')
  assert.equal(status, 202)
  await until('the old process is gone', () => !isAlive(pid))
  await gateway.waitFor('up', 'local')
  assert.notEqual(Number(await one.say('pid')), pid)
  assert.notEqual(Number(await client.say('local__pid')), pid)
  assert.equal(await client.say('remote__session'), session)
  assert.equal((await gateway.post('/admin/servers/nobody/restart')).status, 404)
})

/** Asks the control plane with headers `fetch` would refuse. */
function ask(path: string, headers: Record<string, string>, method = 'GET'): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request(gateway.control + path, { method, headers }, (response) => {
      void text(response).then(() => resolve(response.statusCode ?? 0))
    })
    asking.once('error', reject)
    asking.end()
  })
}

test('pages of other origins and names of other hosts do not reach the control plane', async () => {
  const { host } = new URL(gateway.control)
  for (const path of ['/admin/servers', '/admin/config', '/metrics']) {
    assert.equal(await ask(path, { origin: 'https://evil.example' }), 403)
    assert.equal(await ask(path, { origin: 'null' }), 403)
    assert.equal(await ask(path, { origin: `http://${new URL(gateway.data).host}` }), 403)
    assert.equal(await ask(path, { 'sec-fetch-site': 'cross-site' }), 403)
    assert.equal(await ask(path, { host: 'evil.example' }), 403)
    assert.equal(await ask(path, { origin: `http://${host}` }), 200)
  }
  assert.equal(await ask('/admin/reload', { origin: 'https://evil.example' }, 'POST'), 403)
  assert.equal(await ask('/admin/servers/local/restart', { 'sec-fetch-site': 'same-site' }, 'POST'), 403)
})

test('the processes of a stdio server are counted, and those of a server behind a URL are not ours', async () => {
  const processes = (server: string) => gateway.metric('breakwater_server_processes', `server="${server}"`)
  assert.equal(await processes('local'), 1)
  assert.equal(await processes('remote'), undefined)
})

test('both ports list their paths at the root', async () => {
  for (const [port, paths] of [
    [gateway.data, ['/mcp', '/mcp/{server}', '/readyz']],
    [gateway.control, ['/metrics', '/admin/servers', '/admin/chaos']],
  ] as const) {
    const reply = await fetch(port)
    assert.deepEqual([reply.status, reply.headers.get('content-type')], [200, 'text/plain; charset=utf-8'])
    const text = await reply.text()
    for (const path of paths) assert.ok(text.includes(`  ${path} `), text)
  }
})
