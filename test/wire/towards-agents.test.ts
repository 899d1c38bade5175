import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { armed, cleanUp, Gateway, type Json } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../e2e/support/raw-server.ts'
import { RawSocket } from '../e2e/support/raw-socket.ts'
import { until } from '../support/until.ts'

/*
 * Effects of faults on bytes to agents, together with something else: an earlier reply, another fault, the framing of
 * an event.
 */

after(async () => {
  await cleanUp()
  closeServers()
})

/** Starts a gateway with one server and faults towards agents, each for the calls of its tool. */
async function start(server: RawServer, faults: readonly Json[]): Promise<Gateway> {
  const gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: { one: { url: server.url, era: 'legacy' } },
    policies: { defaults: { retry: false, gate: false, overdue: false, verdict: false } },
    chaos: armed(faults.map((fault) => ({ side: 'client', ...fault }))),
  })
  await gateway.waitFor('up', 'one')
  return gateway
}

interface Counts {
  readonly name: string
  readonly hits: number
  readonly concurrent: number
}

async function countsOf(gateway: Gateway, name: string): Promise<Counts | undefined> {
  const { faults } = (await gateway.admin<{ faults: Counts[] }>('/admin/chaos')).body
  return faults.find((fault) => fault.name === name)
}

/** Resolves to true when a call ends without an answer. */
const isCut = (client: RawClient, tool: string): Promise<boolean> =>
  client.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool, arguments: {} } }).then(
    () => false,
    () => true,
  )

test('an agent that leaves while its replies are queued takes no slot of a fault', async () => {
  const held: ServerResponse[] = []
  const server = await RawServer.start(({ message: { id, method, params } }, response) => {
    if (method !== 'tools/call') return false
    if ((params as Json).name === 'slow') held.push(response)
    else sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } }))
    return true
  })
  const match = { method: 'tools/call', tool: 'fast' }
  const gateway = await start(server, [{ name: 'reset', type: 'conn.reset', match, maxConcurrent: 3 }])
  const { headers } = await RawClient.open(gateway.mcp('one'))
  const bodies = ['slow', 'fast', 'fast', 'fast'].map((name, id) =>
    JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: {} } }),
  )
  const length = String(bodies[0]?.length)
  const agent = await RawSocket.open(gateway.mcp('one'), { ...headers, 'content-length': length })
  for (const body of bodies) await agent.begin(body)
  await until('the fault has no place left', async () => (await countsOf(gateway, 'reset'))?.concurrent === 3)
  agent.close()
  await until('the fault holds no slot', async () => (await countsOf(gateway, 'reset'))?.concurrent === 0)
  assert.equal(await isCut(await RawClient.open(gateway.mcp('one')), 'fast'), true)
})

test('a reply that one fault has changed is broken by another one, whichever comes first', async () => {
  const server = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/call') return false
    sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } }))
    return true
  })
  const types = ['rpc.malformed', 'rpc.duplicate', 'rpc.wrong_id', 'rpc.reorder', 'sse.progress_forever']
  const pairs = types.flatMap((type) => [
    { tool: `${type}-first`, types: [type, 'conn.reset'] },
    { tool: `${type}-last`, types: ['conn.reset', type] },
  ])
  const faults = pairs.flatMap(({ tool, types }) =>
    types.map((type) => ({ name: `${tool}-${type}`, type, match: { method: 'tools/call', tool } })),
  )
  const gateway = await start(server, faults)
  const client = await RawClient.open(gateway.mcp('one'))
  for (const { tool } of pairs) {
    assert.equal(await isCut(client, tool), true, tool)
    assert.equal((await countsOf(gateway, `${tool}-conn.reset`))?.hits, 1, tool)
  }
})

test('a reset within the last bytes of an event counts as one', async () => {
  const server = await RawServer.start(({ message: { id, method } }, response) => {
    if (method !== 'tools/call') return false
    const told = {
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: { progressToken: 'p', progress: 1 },
    }
    const answer = { jsonrpc: '2.0', id, result: { content: [] } }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end([told, answer].map((message) => `data: ${JSON.stringify(message)}\n\n`).join(''))
    return true
  })
  const params = { name: 'any', arguments: {}, _meta: { progressToken: 'p' } }
  const replyOf = async (gateway: Gateway) => {
    const client = await RawClient.open(gateway.mcp('one'))
    return client.post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }).then(
      ({ text }) => text,
      () => undefined,
    )
  }
  const whole = (await replyOf(await start(server, [])))?.length ?? 0
  for (const [fromEnd, hits] of [
    [1, 1],
    [30, 1],
    [0, 0],
  ] as const) {
    const at = { afterBytes: whole - fromEnd }
    const gateway = await start(server, [
      { name: 'reset', type: 'conn.reset', at, match: { method: 'tools/call' } },
    ])
    assert.equal((await replyOf(gateway)) === undefined, hits === 1)
    assert.equal((await countsOf(gateway, 'reset'))?.hits, hits, `${fromEnd} bytes from the end`)
  }
})
