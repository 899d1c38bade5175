import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { Traffic } from '../../src/commands/break/scenario/traffic.ts'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** The data port of a gateway with each server's answers; other servers' tools only read. Resolves to its URL. */
async function dataPlane(
  t: TestContext,
  odd: Readonly<Record<string, (response: ServerResponse) => void>>,
): Promise<string> {
  const server = createServer((request: IncomingMessage, response) => {
    const name = (request.url ?? '').replace('/mcp/', '')
    request.resume().on('end', () => {
      const answer = odd[name]
      if (answer !== undefined) return answer(response)
      const tools = [{ name: 'find', annotations: { readOnlyHint: true }, inputSchema: { type: 'object' } }]
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { tools, content: [] } }))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const broken = (response: ServerResponse) => void response.destroy()
function refused(response: ServerResponse): void {
  response.setHeader('content-type', 'application/json')
  response.end('{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"down","data":{"code":"BW_DOWN"}}}')
}

/** Traffic of 50 calls a second, after at least five calls. */
async function called(data: string, servers: { hit: readonly string[]; others: readonly string[] }) {
  const stop = new Cancellation()
  const options = { data, rate: 50, tool: undefined, name: 'test' }
  const traffic = await Traffic.to(servers, options, systemClock, stop)
  const running = traffic.run(stop)
  while (traffic.calls.filter(({ endedAt }) => endedAt !== undefined).length < 5)
    await new Promise((resolve) => setImmediate(resolve))
  stop.abort('over')
  await running
  return { traffic, servers: new Set(traffic.calls.map(({ server }) => server)) }
}

test('another server that cannot be listed keeps no calls from the rest, and is named', async (t) => {
  const data = await dataPlane(t, { broken, refused })
  const { traffic, servers } = await called(data, { hit: ['hit'], others: ['broken', 'fine', 'refused'] })
  assert.deepEqual([...servers].sort(), ['fine', 'hit'])
  assert.equal(traffic.leftOut.length, 2)
  assert.match(traffic.leftOut[0] ?? '', /^broken \(no tools of broken can be listed at /)
  assert.match(traffic.leftOut[1] ?? '', /^refused \(.*: BW_DOWN\)$/)
})

test('hit servers without a listing get no traffic, and the run tells the reason', async (t) => {
  const data = await dataPlane(t, { refused })
  await assert.rejects(called(data, { hit: ['refused'], others: [] }), /no tools of refused can be listed/)
})

test('with another agents’ port, the error names the option', async () => {
  await assert.rejects(
    called('http://127.0.0.1:2', { hit: ['any'], others: [] }),
    /no tools of any can be listed at http:\/\/127\.0\.0\.1:2: it cannot be reached: .*\(--data URL\)$/,
  )
})

test('a run stopped while servers are listed does not wait for the lists', async (t) => {
  const asked = new Cancellation()
  const data = await dataPlane(t, { frozen: () => asked.abort('asked') })
  const stop = new Cancellation()
  asked.addEventListener('abort', () => stop.abort('signal'))
  const options = { data, rate: 50, tool: undefined, name: 'test' }
  // Its clock stands still: only the stop can end the traffic.
  const traffic = Traffic.to({ hit: ['frozen'], others: [] }, options, new ManualClock(), stop)
  await assert.rejects(traffic, /no tools of frozen can be listed at .*: the command was stopped$/)
})

test('a run stopped while tools are tried does not report the tools as unfit', async (t) => {
  const stop = new Cancellation()
  let asked = 0
  const tools = [{ name: 'slow', annotations: { readOnlyHint: true }, inputSchema: { type: 'object' } }]
  const data = await dataPlane(t, {
    hit: (response) => {
      if (asked++ > 0) return stop.abort('signal')
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { tools } }))
    },
  })
  const options = { data, rate: 50, tool: undefined, name: 'test' }
  const traffic = await Traffic.to({ hit: ['hit'], others: [] }, options, new ManualClock(), stop)
  assert.deepEqual(await traffic.settle(stop), [])
})
