import assert from 'node:assert/strict'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { bystand } from '../e2e/support/bystander.ts'
import { cleanUp, Gateway } from '../e2e/support/gateway.ts'
import { RawClient } from '../e2e/support/raw-client.ts'
import { postOf, RawSocket } from '../e2e/support/raw-socket.ts'
import { stdioToolbox } from '../e2e/support/toolbox.ts'

const CALLS = 30

const sockets = new Set<Socket>()

after(async () => {
  await cleanUp()
  for (const socket of sockets) socket.destroy()
  server.close()
})

/** Tool calls received, by tool. */
const came: Record<string, number> = {}

const results: Readonly<Record<string, unknown>> = {
  initialize: {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'half', version: '1' },
  },
  'tools/list': {
    tools: ['behind', 'before'].map((name) => ({ name, inputSchema: { type: 'object' } })),
  },
}

/**
 * A server that half-closes the connection and keeps reading: after each reply, without announcing the close, or, for
 * the tool `before`, instead of the reply.
 */
const server = createServer({ allowHalfOpen: true }, (socket) => {
  sockets.add(socket)
  socket.on('error', () => undefined)
  socket.once('close', () => sockets.delete(socket))
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
    const [head, body] = text.split('\r\n\r\n')
    if (body === undefined) return
    if (head?.startsWith('POST') !== true)
      return void socket.end('HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n')
    if (body.length < Number(/content-length: (\d+)/i.exec(head)?.[1])) return
    text = ''
    const { id, method, params } = JSON.parse(body) as {
      id?: unknown
      method: string
      params?: { name?: string }
    }
    const tool = params?.name ?? ''
    if (method === 'tools/call') came[tool] = (came[tool] ?? 0) + 1
    if (tool === 'before') return void socket.end()
    if (id === undefined) return void socket.end('HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n')
    const result = results[method] ?? { content: [{ type: 'text', text: 'done' }] }
    const reply = JSON.stringify({ jsonrpc: '2.0', id, result })
    socket.end(
      `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${reply.length}\r\n\r\n${reply}`,
    )
  })
})

test('half-closed sockets, of servers and of agents, fail no call that can be answered, and hold nothing', async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
  const gateway = await Gateway.start({ servers: { half: { url }, quiet: stdioToolbox() } })
  await gateway.waitFor('up', 'half', 'quiet')
  const [agent, bystander] = [
    await RawClient.open(gateway.mcp('half')),
    await RawClient.open(gateway.mcp('quiet')),
  ]
  await bystand(
    gateway,
    async () => assert.equal(await bystander.say('echo', { text: 'here' }), 'here'),
    async () => {
      // In sequence, so each call could reuse the connection of the previous call.
      for (let call = 0; call < CALLS; call++) assert.equal(await agent.say('behind'), 'done')
      assert.equal(came.behind, CALLS, 'each call ran once')
      const { error } = await agent.call('before')
      assert.equal((error as { data: { sent: boolean } }).data.sent, true)
      assert.equal(came.before, 1, 'a call that may have run is not sent again')
    },
  )
  await until('the gateway has closed its side of the connections', () => sockets.size === 0)

  // A client that half-closes counts as gone, as at most servers: its call and its connection end.
  const params = { name: 'sleep', arguments: { ms: 60_000 } }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params }
  const opening = Array.from({ length: CALLS }, () =>
    RawSocket.open(bystander.url, {}, { allowHalfOpen: true }),
  )
  const peers = await Promise.all(opening)
  for (const [id, peer] of peers.entries())
    void peer.write(postOf(bystander.url, bystander.headers, { ...message, id }))
  await gateway.waitForCalls(CALLS)
  for (const peer of peers) peer.socket.end()
  await until('their connections are closed', () => peers.every(({ isClosed }) => isClosed))
  assert.equal(await bystander.say('echo', { text: 'here' }), 'here')
})
