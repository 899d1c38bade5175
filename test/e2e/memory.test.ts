import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { cleanUp, Gateway } from './support/gateway.ts'
import { memoryOf, withProbe } from './support/memory.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer, sendResult } from './support/raw-server.ts'
import { HttpToolbox } from './support/toolbox.ts'

const SESSIONS = 200
const SERVERS = ['a', 'b', 'c', 'd', 'e']
const LIMIT_BYTES = 50 * 1024

const AT_ONCE = 10

after(cleanUp)
after(closeServers)

const heapUsed = async (gateway: Gateway) => (await memoryOf(gateway)).heapUsed

async function openSession(gateway: Gateway): Promise<RawClient> {
  const client = await RawClient.open(gateway.mcp())
  for (const server of SERVERS) await client.say(`${server}__echo`, { text: 'hello' })
  return client
}

/** Runs a task `count` times, a few at once, so few sockets count in the measurement. */
async function repeat<T>(count: number, task: (index: number) => Promise<T>): Promise<T[]> {
  const done: T[] = []
  while (done.length < count) {
    const batch = Array.from({ length: Math.min(AT_ONCE, count - done.length) }, (_, index) => index)
    done.push(...(await Promise.all(batch.map((index) => task(done.length + index)))))
  }
  return done
}

test('an idle session costs less than 50 KB of heap, and nothing once it is gone', async (t) => {
  const toolboxes = await Promise.all(SERVERS.map(() => HttpToolbox.start()))
  const servers = Object.fromEntries(SERVERS.map((name, index) => [name, { url: toolboxes[index]?.url }]))
  const gateway = await Gateway.start({ servers }, withProbe())
  await gateway.waitFor('up', ...SERVERS)
  // The first sessions leave one-time memory: compiled code, and grown tables.
  await repeat(SESSIONS, async () => (await openSession(gateway)).leave())

  const before = await heapUsed(gateway)
  const clients = await repeat(SESSIONS, () => openSession(gateway))
  const during = await heapUsed(gateway)
  const { body } = await gateway.admin('/admin/sessions')
  assert.equal(body.open, SESSIONS)
  const each = (during - before) / SESSIONS
  await repeat(SESSIONS, async (index) => clients[index]?.leave())
  const rest = ((await heapUsed(gateway)) - before) / SESSIONS

  t.diagnostic(`${Math.round(each)} bytes a session, ${Math.round(rest)} after it`)
  assert.ok(each < LIMIT_BYTES, `${Math.round(each)} bytes a session`)
  assert.ok(rest < each / 2, `${Math.round(rest)} bytes remain of a session`)
})

test('faults keep nothing of the replies that they were applied to', async (t) => {
  const text = 'x'.repeat(1024 ** 2)
  const server = await RawServer.start(
    ({ message }, response) => {
      if (message.method !== 'tools/call') return false
      const result = { content: [{ type: 'text', text }] }
      return sendResult(response, message.id, result)
    },
    ['big'],
  )
  const fault = { ttl: '5m', match: { server: 'raw' }, allowWrites: true }
  const faults = [
    { name: 'failed', type: 'result.is_error', rate: 0.5, ...fault },
    { name: 'partial', type: 'result.partial', operators: 'auto', rate: 1, ...fault },
  ]
  const gateway = await Gateway.start(
    {
      gateway: { environment: 'test' },
      servers: { raw: { url: server.url } },
      chaos: { enabled: true, faults },
    },
    withProbe(),
  )
  await gateway.waitFor('up', 'raw')
  await gateway.post('/admin/chaos/arm')
  const client = await RawClient.open(gateway.mcp('raw'))
  const inUse = async () => {
    const { heapUsed, external } = await memoryOf(gateway)
    return heapUsed + external
  }
  const call = () => client.request('tools/call', { name: 'big', arguments: {} })
  await repeat(AT_ONCE, call)
  const before = await inUse()
  const replies = await repeat(60, call)
  const more = (await inUse()) - before
  const { body: status } = await gateway.admin<{ faults: { name: string; injected: number }[] }>(
    '/admin/chaos',
  )
  for (const { name, injected } of status.faults) assert.ok(injected > 10, `${name}: ${injected}`)
  t.diagnostic(`${Math.round(more / 1024)} KiB more after ${replies.length} replies of 1 MiB`)
  assert.ok(more < 10 * 1024 ** 2, `${more} bytes`)
})
