import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { text } from 'node:stream/consumers'
import { cleanUp, Gateway } from './support/gateway.ts'
import { closeServers, RawServer } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

let gateway: Gateway
let open: RawServer
let other: RawServer

before(async () => {
  open = await RawServer.start(({ verb, message }, response) => {
    if (message.jsonrpc !== undefined || verb === 'DELETE') return false
    response.writeHead(207, { 'x-from': 'open', 'content-type': 'text/plain' }).end(`${verb} done`)
    return true
  })
  other = await RawServer.start(() => false)
  gateway = await Gateway.start({
    servers: {
      open: { url: open.url, passthrough: true, headers: { 'X-Api-Key': 'configured' } },
      closed: { url: other.url },
      local: stdioToolbox(),
    },
  })
  await gateway.waitFor('up', 'open', 'closed')
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Asks for a path without normalising it. */
function ask(path: string, headers: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  const { hostname, port } = new URL(gateway.data)
  return new Promise((resolve, reject) => {
    const asking = request({ hostname, port, path, headers }, (response) => {
      void text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }))
    })
    asking.once('error', reject)
    asking.end()
  })
}

test('plain HTTP passes to a server that allows it, without the agent’s credentials', async () => {
  const headers = {
    authorization: 'Bearer agent',
    cookie: 'a=b',
    'mcp-session-id': 'ours',
    'x-own': 'kept',
    'content-type': 'text/plain',
  }
  const url = `${gateway.data}/proxy/open/files/a%20b?x=1&y=%2F`
  const reply = await fetch(url, { method: 'PUT', body: 'contents', headers })
  assert.equal(reply.status, 207)
  assert.equal(reply.headers.get('x-from'), 'open')
  assert.equal(await reply.text(), 'PUT done')
  const seen = open.seen.find(({ verb }) => verb === 'PUT')
  assert.equal(seen?.url, '/files/a%20b?x=1&y=%2F')
  assert.equal(seen.text, 'contents')
  assert.equal(seen.headers['x-own'], 'kept')
  assert.equal(seen.headers['x-api-key'], 'configured')
  for (const name of ['authorization', 'cookie', 'mcp-session-id'])
    assert.equal(seen.headers[name], undefined, name)
})

test('the proxy answers 404 for servers without plain HTTP', async () => {
  for (const name of ['closed', 'local', 'nobody'])
    assert.equal((await ask(`/proxy/${name}/x`)).status, 404, name)
})

test('no path leads to another server', async () => {
  const { host } = new URL(other.url)
  const before = other.seen.length
  const paths = [
    `//${host}/x`,
    `/http://${host}/x`,
    `/\\\\${host}/x`,
    `/..//${host}/x`,
    `/@${host}/x`,
    `/%2F%2F${host}/x`,
  ]
  for (const path of paths) await ask(`/proxy/open${path}`)
  assert.equal(other.seen.length, before)
})

test('pages and names of other hosts do not reach the proxy', async () => {
  assert.equal((await ask('/proxy/open/x', { origin: 'https://evil.example' })).status, 403)
  assert.equal((await ask('/proxy/open/x', { host: 'evil.example' })).status, 403)
})
