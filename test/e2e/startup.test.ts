import assert from 'node:assert/strict'
import { createServer, type Server } from 'node:net'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'

let hung: Server
let gateway: Gateway
let listeningAfterMs: number

/** How long the gateway waits for a server that never answers, in milliseconds. */
const HUNG_FOR_MS = 60_000

before(async () => {
  hung = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1')
  await new Promise((resolve) => hung.once('listening', resolve))
  const address = hung.address()
  const port = typeof address === 'object' ? address?.port : undefined
  const servers = {
    dead: { url: 'http://127.0.0.1:9/mcp' },
    hung: { url: `http://127.0.0.1:${port}/mcp`, timeouts: { discovery: HUNG_FOR_MS } },
    missing: { command: 'breakwater-no-such-command' },
    healthy: stdioToolbox(),
  }
  const policies = { defaults: { attemptTimeout: { timeout: '1s' } } }
  const { ms, value } = await timed(() => Gateway.start({ servers, policies }))
  listeningAfterMs = ms
  gateway = value
})

after(async () => {
  await cleanUp()
  hung.close()
})

async function timed<T>(task: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const startedAt = performance.now()
  const value = await task()
  return { ms: performance.now() - startedAt, value }
}

test('bad servers do not keep the gateway from listening', () => {
  assert.ok(listeningAfterMs < HUNG_FOR_MS, `${listeningAfterMs} ms`)
})

test('a list comes within the list timeout and says whose tools are missing', async () => {
  const client = await RawClient.open(gateway.mcp())
  const { ms, value } = await timed(() => client.request('tools/list'))
  assert.ok(ms < 2_000 + 2_000, `took ${ms} ms`)
  const { tools, _meta } = value.result as { tools: { name: string }[]; _meta: Json }
  const names = tools.map(({ name }) => name)
  assert.ok(names.includes('healthy__echo'), names.join())
  assert.ok(names.every((name) => name.startsWith('healthy__')))
  const partial = _meta['dev.breakwater/partial'] as Json
  assert.deepEqual(partial.missing, ['dead', 'hung', 'missing'])
  assert.equal(await client.say('healthy__echo', { text: 'hello' }), 'hello')
})

test('healthy tools work while a server hangs, and calls to bad servers say why they fail', async () => {
  const client = await RawClient.open(gateway.mcp())
  const dataOf = async (tool: string) => ((await client.call(tool)).error as { data: Json }).data
  const failing = Promise.all([dataOf('dead__any'), dataOf('hung__any'), dataOf('missing__any')])
  assert.equal(await client.say('healthy__echo', { text: 'meanwhile' }), 'meanwhile')
  const [dead, hanging, missing] = await failing
  assert.equal(dead.code, 'BW_UPSTREAM_UNAVAILABLE')
  assert.equal(missing.code, 'BW_UPSTREAM_UNAVAILABLE')
  assert.equal(hanging.code, 'BW_ATTEMPT_TIMEOUT')
  assert.equal(hanging.server, 'hung')
  assert.equal((await fetch(`${gateway.data}/readyz`)).status, 200)
})
