import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { extname } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { httpWithSse } from '../fixtures/contract/serve.ts'
import { createContractServer } from '../fixtures/contract/server.ts'
import { until } from '../support/until.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { closeClients, connect, textOf } from './support/sdk-client.ts'

after(async () => {
  await closeClients()
  await cleanUp()
})

const uri = 'file:///a'
const fixture = (name: string) =>
  fileURLToPath(new URL(`../fixtures/${name}${extname(import.meta.url)}`, import.meta.url))
/** A server that notes its starts. */
const entry = {
  command: 'sh',
  args: ['-c', `echo started >&2; exec "${process.execPath}" "${fixture('contract-server')}"`],
}

/** Starts an agent with a subscription to a server's resource. */
async function subscriber(server: Json) {
  const gateway = await Gateway.start({ servers: { box: { ...server, health: { every: '1s' } } } })
  await gateway.waitFor('up', 'box')
  const updates: string[] = []
  const open = () =>
    connect(gateway.mcp('box'), {}, (one) =>
      one.setNotificationHandler(
        ResourceUpdatedNotificationSchema,
        ({ params }) => void updates.push(params.uri),
      ),
    )
  const client = await open()
  const call = async (name: string, args: Json = {}, by = client) =>
    JSON.parse(textOf(await by.callTool({ name, arguments: args }))) as unknown
  await client.subscribeResource({ uri })
  assert.ok(await call('touch', { uri }))
  await until('the agent hears of the resource', () => updates.length > 0)
  updates.length = 0
  return { gateway, updates, open, call }
}

test('an agent that only listens hears of its resource after the shared process was killed', async () => {
  const { updates, open, call } = await subscriber(entry)
  const other = await open()
  process.kill(Number(await call('pid')), 'SIGKILL')
  await until('the new process knows of the subscription', async () => {
    const touched = await call('touch', { uri }, other).catch(() => false)
    return touched === true
  })
  await until('the agent hears of the resource', () => updates.length > 0)
})

test('agents that only listen hear of their resource after a shared process of the modern era was killed', async () => {
  const program = { command: process.execPath, args: [fixture('modern-stdio')] }
  const { gateway, updates, open, call } = await subscriber(program)
  const listener = await new ModernClient(gateway.mcp('box')).listen({ resourceSubscriptions: [uri] })
  const other = await open()
  const heard = () => [updates.length, listener.messages('notifications/resources/updated').length]
  const touched = (before: readonly number[]) => async () => {
    await call('touch', { uri }, other).catch(() => undefined)
    return heard().every((count, i) => count > (before[i] ?? 0))
  }
  await until('both agents hear of the resource', touched([0, 0]))
  const { pid } = (await call('who', {}, other)) as { pid: number }
  process.kill(pid, 'SIGKILL')
  await until('the process has ended', async () => {
    const answer = (await call('who', {}, other).catch(() => ({ pid }))) as { pid: number }
    return answer.pid !== pid
  })
  await until('both agents hear of the resource again', touched(heard()))
})

test("an agent's killed process restarts for its subscriptions, and gets them again", async () => {
  const { gateway, call } = await subscriber({ ...entry, sharing: 'per_session' })
  const started = () => gateway.log.filter(({ stderr }) => stderr === 'started').length
  const before = started()
  process.kill(Number(await call('pid')), 'SIGKILL')
  await until('the process is started again', () => started() > before)
  assert.equal(await call('touch', { uri }), true)
})

test('a subscription over HTTP+SSE outlives the event stream', async (t) => {
  const server = httpWithSse(createContractServer).listen(0, '127.0.0.1')
  t.after(() => server.close().closeAllConnections())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const { updates, call } = await subscriber({ url: `http://127.0.0.1:${port}/sse`, type: 'sse' })
  server.closeAllConnections()
  await until('the server knows of the subscription', async () => {
    const touched = await call('touch', { uri }).catch(() => false)
    return touched === true
  })
  await until('the agent hears of the resource', () => updates.length > 0)
})
