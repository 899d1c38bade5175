import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'
import type { EventReader } from './support/event-reader.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'
import { HttpToolbox, stdioToolbox } from './support/toolbox.ts'

const LIST_CHANGED = 'notifications/tools/list_changed'

let gateway: Gateway
let remote: HttpToolbox
let client: RawClient
let stream: EventReader

before(async () => {
  remote = await HttpToolbox.start()
  gateway = await Gateway.start({ servers: { local: stdioToolbox() } })
  await gateway.waitFor('up', 'local')
  client = await RawClient.open(gateway.mcp())
  stream = await client.listen()
})
after(cleanUp)

async function serversInList(): Promise<string> {
  const { result } = (await client.request('tools/list')) as { result: { tools: { name: string }[] } }
  return [...new Set(result.tools.map(({ name }) => name.split('__')[0]))].join()
}

/** Does something, and waits until sessions heard of the changed list. */
async function telling(change: () => Promise<unknown>): Promise<void> {
  const told = stream.messages(LIST_CHANGED).length
  await change()
  await until('sessions are told', () => stream.messages(LIST_CHANGED).length > told)
}

test('a server that is added appears with its tools, and sessions are told', async () => {
  const pid = await client.say('local__pid')
  await telling(() =>
    gateway.reconfigure({ servers: { local: stdioToolbox(), remote: { url: remote.url } } }),
  )
  await until(
    'the tools of the new server are listed',
    async () => (await serversInList()) === 'local,remote',
  )
  assert.equal(await client.say('remote__echo', { text: 'new' }), 'new')
  assert.equal(await client.say('local__pid'), pid)
})

test('the reading limit and the number of processes change without a restart', async () => {
  const pid = await client.say('local__pid')
  const text = 'x'.repeat(100_000)
  const changed = { maxReply: '64KiB', timeouts: { idle: '1m', connect: '1s' }, processes: { max: 3 } }
  await gateway.reconfigure({ servers: { local: stdioToolbox(changed), remote: { url: remote.url } } })
  await until('the new limit is in force', async () => {
    const { error } = (await client.call('local__echo', { text })) as { error?: Json }
    return (error?.data as Json | undefined)?.reason === 'reply_too_large'
  })
  await gateway.reconfigure({ servers: { local: stdioToolbox(), remote: { url: remote.url } } })
  await until(
    'the old limit is in force again',
    async () => 'result' in (await client.call('local__echo', { text })),
  )
  assert.equal(await client.say('local__pid'), pid)
})

test('a server that is changed starts anew; its sessions and its calls under way go on', async () => {
  const one = await RawClient.open(gateway.mcp('local'))
  const pid = Number(await one.say('pid'))
  const call = one.say('sleep', { ms: 1_500 })
  await gateway.waitForCalls(1)
  await gateway.reconfigure({
    servers: { local: stdioToolbox({ env: { CHANGED: 'yes' } }), remote: { url: remote.url } },
  })
  await until('a new process serves', async () => Number(await one.say('pid')) !== pid)
  assert.equal(await one.say('env', { name: 'CHANGED' }), 'yes')
  assert.equal(await client.say('local__env', { name: 'CHANGED' }), 'yes')
  assert.equal(await call, 'slept 1500 ms')
  await until('the old process is gone', () => !isAlive(pid))
})

test('a server that is removed leaves the list, its sessions end, its process too, its calls finish', async () => {
  const one = await RawClient.open(gateway.mcp('local'))
  const pid = Number(await one.say('pid'))
  const calls = [one.say('sleep', { ms: 1_500 }), client.say('local__sleep', { ms: 1_500 })]
  await gateway.waitForCalls(2)
  await telling(() => gateway.reconfigure({ servers: { remote: { url: remote.url } } }))
  assert.equal(await serversInList(), 'remote')
  assert.equal((await one.post({ jsonrpc: '2.0', id: 1, method: 'ping' })).status, 404)
  const { error } = (await client.call('local__echo')) as { error: Json }
  assert.equal(error.code, -32602)
  assert.deepEqual(await Promise.all(calls), ['slept 1500 ms', 'slept 1500 ms'])
  await until('the process is gone', () => !isAlive(pid))
})
