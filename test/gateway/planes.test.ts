import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { test } from 'node:test'
import Fastify from 'fastify'
import { listenAt } from '../../src/gateway/planes.ts'
import { controlToken, runGateway } from './running-gateway.ts'

test('a gateway whose data port is taken leaves no port of its own open', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.after(() => taken.close())
  const { port } = taken.address() as AddressInfo
  const ports = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPServerWrap').length
  const before = ports()
  const parts = { servers: {}, gateway: { listen: `127.0.0.1:${port}` } }
  await assert.rejects(runGateway(t, parts), new RegExp(`port ${port}: .*gateway\\.listen`))
  assert.equal(ports(), before)
})

test('an address that cannot be bound is named with its port, the reason, and the key that sets it', async (t) => {
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.after(() => taken.close())
  const { port } = taken.address() as AddressInfo
  for (const [host, cause] of [
    ['127.0.0.1', 'something else listens there already'],
    // An address reserved for documentation.
    ['192.0.2.1', 'this machine has no such address'],
  ] as const) {
    const app = Fastify()
    t.after(() => app.close())
    await assert.rejects(listenAt({ host, port }, app, 'gateway.listen'), {
      message: `cannot listen on ${host}, port ${port}: ${cause}; set another address with gateway.listen or --port`,
    })
  }
})

test('a path unknown to both planes is a 404 with an explanation, and no plane answers for the other', async (t) => {
  const { gateway } = await runGateway(t, { servers: {} })
  const ask = async (base: string, path: string) => {
    const response = await fetch(base + path, { headers: { authorization: `Bearer ${controlToken}` } })
    return [response.status, await response.text()] as const
  }
  const unknown = `/${'x'.repeat(300)}?secret=1`
  for (const base of [gateway.data, gateway.control]) {
    const [status, text] = await ask(base, unknown)
    assert.equal(status, 404)
    assert.match(text, /no route GET \/x{199}"/)
    assert.doesNotMatch(text, /secret/)
  }
  for (const path of ['/metrics', '/admin/servers', '/chaos'])
    assert.equal((await ask(gateway.data, path))[0], 404, path)
  for (const path of ['/mcp', '/livez', '/readyz'])
    assert.equal((await ask(gateway.control, path))[0], 404, path)
})

test('broken JSON is reported to operators like any other error, and to agents in JSON-RPC', async (t) => {
  const { gateway } = await runGateway(t, { servers: {} })
  const post = async (url: string, body: string) => {
    const headers = { authorization: `Bearer ${controlToken}`, 'content-type': 'application/json' }
    const response = await fetch(url, { method: 'POST', headers, body })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  for (const route of ['/admin/servers', '/admin/reload', '/admin/experiments']) {
    const { status, body } = await post(gateway.control + route, '{"a":')
    assert.equal(status, 400, route)
    assert.deepEqual(Object.keys(body), ['error'])
    assert.equal(typeof body.error, 'string')
  }
  const { status, body } = await post(`${gateway.data}/mcp`, '{"a":')
  assert.equal(status, 400)
  assert.equal((body.error as { code: number }).code, -32700)
})

test('an optional body may be missing, whatever the client says of its kind', async (t) => {
  const { gateway } = await runGateway(t, { servers: {} })
  const headers = { authorization: `Bearer ${controlToken}`, 'content-type': 'application/json' }
  const post = async (path: string) => fetch(gateway.control + path, { method: 'POST', headers })
  assert.equal((await post('/chaos/clear-all')).status, 200)
  for (const path of ['/admin/chaos/arm', '/admin/servers']) {
    const response = await post(path)
    assert.ok(response.status >= 400 && response.status < 500, path)
    assert.doesNotMatch(await response.text(), /content-type/, path)
  }
})
