import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, afterEach, test } from 'node:test'
import { cleanUp, newFolder } from './support/gateway.ts'
import { Program } from './support/program.ts'
import { closeServers, RawServer } from './support/raw-server.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'
import { HttpToolbox } from './support/toolbox.ts'
import { main } from '../support/main.ts'

/** `command`: `http`, or mcp-chaos's word for it. */
async function wrap(plan: unknown, args: readonly string[] = [], command: readonly string[] = ['http']) {
  const file = join(await newFolder(), 'plan.yaml')
  await writeFile(file, JSON.stringify(plan))
  const { url } = await HttpToolbox.start()
  const program = new Program([main, ...command, '--upstream', url, '--port', '0', '--plan', file, ...args])
  const endpoint = await program.line('its endpoint', (line) => /^http\S+\/mcp\/wrapped$/.exec(line)?.[0])
  return { program, endpoint }
}

const always = { rate: 1, ttl: '5m', allowWrites: true }

afterEach(closeClients)
after(async () => {
  await cleanUp()
  closeServers()
})

test('a wrapped endpoint works under its own names and, with a prefix, on /mcp', async () => {
  const { endpoint } = await wrap({ seed: 1, faults: [] })
  const own = await connect(endpoint)
  assert.equal(textOf(await own.callTool({ name: 'echo', arguments: { text: 'hi' } })), 'hi')
  const all = await connect(endpoint.replace('/wrapped', ''))
  assert.equal(textOf(await all.callTool({ name: 'wrapped__echo', arguments: { text: 'hi' } })), 'hi')
})

for (const path of ['/mcp', '/'])
  test(`an address without a path means a server at ${path}, where that is its endpoint`, async () => {
    const server = await RawServer.start(
      ({ url }, response) => {
        if (url === path) return false
        response.writeHead(404).end()
        return true
      },
      ['look'],
    )
    const program = new Program([
      main,
      ...['proxy', 'http', '--upstream', new URL(server.url).origin, '--port', '0'],
    ])
    const endpoint = await program.line('its endpoint', (line) => /^http\S+\/mcp\/wrapped$/.exec(line)?.[0])
    const client = await connect(endpoint)
    const { tools } = await client.listTools()
    assert.deepEqual(
      tools.map(({ name }) => name),
      ['look'],
    )
  })

test('faults of HTTP hit a wrapped endpoint, and the mesh around it tells them as its own errors', async () => {
  const { endpoint } = await wrap({
    chaos: {
      faults: [{ ...always, name: 'down', type: 'http.status', status: 503, match: { tool: 'echo' } }],
    },
  })
  const client = await connect(endpoint)
  await assert.rejects(client.callTool({ name: 'echo', arguments: { text: 'hi' } }), /503/)
  assert.match(textOf(await client.callTool({ name: 'pid', arguments: {} })), /^\d+$/)
})

test("the wrap command works as mcp-chaos's proxy http, and a single-service plan of mcp-chaos-monkey applies to it", async () => {
  const faults = [{ target: 'weather-api/echo', config: { type: 'timeout', hangMs: 20 } }]
  const { endpoint } = await wrap({ faults }, ['--strict'], ['proxy', 'http'])
  const client = await connect(endpoint)
  await assert.rejects(client.callTool({ name: 'echo', arguments: { text: 'hi' } }), /ETIMEDOUT/)
  assert.match(textOf(await client.callTool({ name: 'pid', arguments: {} })), /^\d+$/)
})

test('SIGTERM ends the wrap command with 0 and a report of its faults', async () => {
  const plan = [{ ...always, name: 'gone', type: 'rpc.error', match: { tool: 'echo' } }]
  const { program, endpoint } = await wrap(plan, ['--strict'])
  const client = await connect(endpoint)
  await assert.rejects(client.callTool({ name: 'echo', arguments: { text: 'hi' } }))
  program.signal('SIGTERM')
  assert.deepEqual(await program.ended, { code: 0, signal: null })
  assert.match(program.lines.join('\n'), /gone .*injected 1, masked 0, delayed 0, surfaced 1, escaped 0/)
})

test('the wrap command demands an endpoint and a valid port', async () => {
  for (const [args, why] of [
    [[], /--upstream is missing/],
    [['--upstream', 'http://127.0.0.1:1/mcp', '--port', '70000'], /--port must be/],
    [['--upstream', 'ftp://x'], /--upstream must be a URL/],
  ] as const) {
    const program = new Program([main, 'http', ...args])
    assert.notEqual((await program.ended).code, 0)
    assert.match(program.lines.join('\n'), why)
  }
})
