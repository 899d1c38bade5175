import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { writeFile } from 'node:fs/promises'
import { cleanUp, Gateway } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendJson } from './support/raw-server.ts'
import { stdioToolbox } from './support/toolbox.ts'

const secret = (what: string) => `s3cr3t-${what}-0123456789`

const token = secret('token')
const operator = { headers: { authorization: `Bearer ${token}` } }

const agentHeaders = {
  authorization: `Bearer ${secret('agent')}`,
  cookie: `session=${secret('cookie')}`,
  'proxy-authorization': `Basic ${secret('proxy')}`,
  'x-request-id': 'r-1',
  'x-user-token': secret('user'),
  'x-other': 'other',
}

let gateway: Gateway
let server: RawServer

before(async () => {
  server = await RawServer.start(
    ({ message, headers }, response) => {
      if (message.method !== 'tools/call') return false
      const { name } = message.params as { name: string }
      if (name === 'refuse')
        response
          .writeHead(401, { 'www-authenticate': secret('realm') })
          .end(`refused: ${[headers.authorization, headers['x-api-key'], headers['x-renamed']].join(' ')}`)
      else sendJson(response, JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { content: [] } }))
      return true
    },
    ['accept', 'refuse'],
  )
  gateway = await Gateway.start(
    {
      gateway: { controlToken: token },
      servers: {
        recording: {
          url: `${server.url}?key=${secret('query')}`,
          headers: { 'X-Api-Key': secret('header'), Authorization: 'Bearer ${FROM_ENV}' },
          forwardHeaders: { 'x-request-id': 'x-request-id', 'x-user-token': 'x-renamed' },
        },
        basic: { url: server.url.replace('127.0.0.1', `user:${secret('password')}@127.0.0.1`) },
        local: stdioToolbox({ env: { API_KEY: secret('env') } }),
        dead: { url: 'http://127.0.0.1:9/mcp', headers: { 'X-Api-Key': secret('dead') } },
        broken: {
          command: 'sh',
          args: ['-c', 'exit 3', '--token', secret('arg'), '${FROM_ENV_AS_WELL}'],
          env: { KEY: secret('broken') },
        },
      },
    },
    {
      env: { FROM_ENV: secret('variable'), FROM_ENV_AS_WELL: secret('word') },
      args: ['--log-level', 'trace'],
    },
  )
})
after(async () => {
  await cleanUp()
  closeServers()
})

for (const route of ['recording', undefined]) {
  test(`only configured headers of an agent reach a server (${route ?? 'among others'})`, async () => {
    const client = await RawClient.open(gateway.mcp(route), { headers: agentHeaders })
    await client.call(route === undefined ? 'recording__accept' : 'accept')
    const seen = server.of('tools/call').at(-1)
    assert.ok(seen)
    const { headers } = seen
    assert.equal(headers.authorization, `Bearer ${secret('variable')}`)
    assert.equal(headers['x-api-key'], secret('header'))
    assert.equal(headers['x-request-id'], 'r-1')
    assert.equal(headers['x-renamed'], secret('user'))
    for (const name of ['cookie', 'proxy-authorization', 'x-user-token', 'x-other'])
      assert.equal(headers[name], undefined, name)
    const everything = JSON.stringify(server.seen)
    for (const what of ['agent', 'cookie', 'proxy']) assert.ok(!everything.includes(secret(what)), what)
    assert.ok(!everything.includes(client.session))
  })
}

test('headers that are passed on go with the handshake and with each call, and a session has one set of them', async () => {
  const [atInitialize, atCall] = [secret('at-initialize'), secret('at-call')]
  const client = await RawClient.open(gateway.mcp('recording'), { headers: { 'x-user-token': atInitialize } })
  for (const method of ['initialize', 'notifications/initialized'])
    assert.equal(server.of(method).at(-1)?.headers['x-renamed'], atInitialize, method)
  const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'accept' } }
  await client.post(call, { 'x-user-token': atInitialize })
  assert.equal(server.of('tools/call').at(-1)?.headers['x-renamed'], atInitialize)
  const before = server.of('tools/call').length
  assert.equal((await client.post(call, { 'x-user-token': atCall })).status, 404)
  assert.equal(server.of('tools/call').length, before)
})

test('credentials in a URL become a header', async () => {
  const client = await RawClient.open(gateway.mcp('basic'))
  await client.call('accept')
  const basic = Buffer.from(`user:${secret('password')}`).toString('base64')
  assert.equal(server.of('tools/call').at(-1)?.headers.authorization, `Basic ${basic}`)
})

test('the control plane demands its token', async () => {
  for (const path of ['/admin/servers', '/admin/config', '/metrics', '/nowhere']) {
    const anonymous = await fetch(gateway.control + path)
    assert.equal(anonymous.status, 401, path)
    assert.equal(anonymous.headers.get('www-authenticate'), 'Bearer')
    const wrong = { headers: { authorization: `Bearer ${token.slice(0, -1)}x` } }
    assert.equal((await fetch(gateway.control + path, wrong)).status, 401, path)
    assert.notEqual((await fetch(gateway.control + path, operator)).status, 401, path)
  }
})

test("no secret shows in the gateway's texts for operators, agents and the log", async () => {
  const client = await RawClient.open(gateway.mcp(), { headers: agentHeaders })
  const tools = ['recording__refuse', 'dead__any', 'broken__any', 'local__nothing', 'basic__refuse']
  const said = [JSON.stringify(await Promise.all(tools.map((tool) => client.call(tool))))]
  for (const path of ['config', 'servers', 'servers/recording', 'servers/broken', 'mesh', 'sessions'])
    said.push(await (await fetch(`${gateway.control}/admin/${path}`, operator)).text())
  said.push(await (await fetch(`${gateway.control}/metrics`, operator)).text())

  // A config with mistakes right beside secrets.
  const mistaken = {
    mcpServers: { x: { url: 'nowhere', headers: { 'X-Key': secret('new'), 'Bad Name': secret('bad') } } },
  }
  await writeFile(gateway.file, JSON.stringify(mistaken))
  const reload = await fetch(`${gateway.control}/admin/reload`, { ...operator, method: 'POST' })
  assert.equal(reload.status, 422)
  said.push(await reload.text())

  gateway.program.signal('SIGTERM')
  await gateway.program.ended
  assert.ok(gateway.log.length > 5)
  said.push(gateway.program.lines.join('\n'))
  for (const text of said) assert.doesNotMatch(text, /s3cr3t/)
})
