import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { after, before, beforeEach, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, configText, Gateway, type Json } from './support/gateway.ts'
import { until } from '../support/until.ts'
import { RawClient } from './support/raw-client.ts'
import { closeServers, RawServer } from './support/raw-server.ts'

const steady = { consecutive: 5, open: '1m' }
const CALLERS = 10

let servers: [FlakyServer, FlakyServer, FlakyServer]
let gateway: Gateway

before(async () => {
  servers = await Promise.all([FlakyServer.start(), FlakyServer.start(), FlakyServer.start()])
  gateway = await Gateway.start({ servers: {} })
})
beforeEach(() => Promise.all(servers.map((server) => server.behave({ read: {} }))))
after(cleanUp)
after(closeServers)

/**
 * Puts a config into force, and waits for its server, if any. Other headers make other endpoints, so tests do not share
 * state about a server.
 */
async function configure(urls: readonly string[], breaker: Json = steady, headers: Json = {}): Promise<void> {
  const entries = urls.length === 0 ? {} : { flaky: { urls, headers, trusted: true } }
  const policies = { defaults: { retry: false, breaker } }
  await writeFile(gateway.file, configText({ servers: entries, policies }))
  assert.equal((await gateway.post('/admin/reload')).status, 200)
  if (urls.length > 0) await gateway.waitFor('up', 'flaky')
}

/** Returns the reasons of failed calls of several callers. */
async function calls(count: number): Promise<unknown[]> {
  const clients = await Promise.all(
    Array.from({ length: CALLERS }, () => RawClient.open(gateway.mcp('flaky'))),
  )
  const failed: unknown[] = []
  const agent = async (client: RawClient) => {
    for (let n = 0; n < count / CALLERS; n++) {
      const { error } = await client.call('read')
      if (error !== undefined) failed.push((error as { data: Json }).data.reason)
    }
  }
  await Promise.all(clients.map(agent))
  return failed
}

async function breakers(): Promise<[replica: unknown, state: unknown][]> {
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  return body.filter(({ tool }) => tool === 'read').map(({ replica, state }) => [replica, state])
}

test('a server whose URL was repaired is used at once', async () => {
  const [broken, repaired] = servers
  await broken.behave({ read: { failing: 1 } })
  await configure([broken.url])
  assert.ok((await calls(20)).includes('breaker_open'))
  await configure([repaired.url])
  assert.deepEqual(await calls(20), [])
})

test('a server whose credentials were repaired is used at once, by the same URL', async () => {
  const [server] = servers
  await server.behave({ read: { failing: 1 } })
  await configure([server.url], steady, { 'x-key': 'old' })
  assert.ok((await calls(20)).includes('breaker_open'))
  await server.behave({ read: {} })
  assert.ok((await calls(20)).includes('breaker_open'))
  await configure([server.url], steady, { 'x-key': 'new' })
  assert.deepEqual(await calls(20), [])
})

test('a good replica that moves to the place of a bad one keeps its share, and is shown at its new place', async () => {
  const [bad, good, fresh] = servers
  await bad.behave({ read: { failing: 1 } })
  await configure([bad.url, good.url], steady, { 'x-key': 'moving' })
  assert.ok((await calls(100)).length > 0)
  await configure([good.url, fresh.url], steady, { 'x-key': 'moving' })
  assert.deepEqual(await breakers(), [[0, 'closed']])
  const before = await Promise.all([good.count('read'), fresh.count('read')])
  assert.deepEqual(await calls(300), [])
  const after = await Promise.all([good.count('read'), fresh.count('read')])
  const [toGood, toFresh] = [after[0] - before[0], after[1] - before[1]]
  // Not halves: calls prefer the faster replica, which may be the same for a while on a busy machine.
  assert.ok(toGood > 20 && toFresh > 20, `${toGood} and ${toFresh} of 300 calls`)
})

test('a bad replica keeps its bad record at another place in the list', async () => {
  const [bad, good] = servers
  await bad.behave({ read: { failing: 1 } })
  await configure([bad.url, good.url], steady, { 'x-key': 'still bad' })
  // Calls avoid a failing replica, so enough failures for its breaker may take some time.
  await until('the breaker of the replica has opened', async () => {
    await calls(20)
    return (await breakers()).some(([replica, state]) => replica === 0 && state !== 'closed')
  })
  await configure([good.url, bad.url], steady, { 'x-key': 'still bad' })
  assert.ok((await breakers()).some(([replica, state]) => replica === 1 && state !== 'closed'))
  const before = await bad.count('read')
  assert.deepEqual(await calls(100), [])
  assert.equal(await bad.count('read'), before)
})

test('a server that is removed and added again goes on where it was, and another of its name begins anew', async () => {
  const [server, other] = servers
  await server.behave({ read: { failing: 1 } })
  await configure([server.url])
  await calls(20)
  await configure([])
  assert.deepEqual(await breakers(), [])
  await server.behave({ read: {} })
  await configure([other.url])
  assert.deepEqual(await calls(20), [])
  await configure([server.url])
  assert.deepEqual(await breakers(), [[0, 'open']])
  assert.deepEqual(new Set(await calls(20)), new Set(['breaker_open']))
})

test('a breaker held open by an operator stays open across changes of settings or URL, until closed', async () => {
  const [server, other] = servers
  await configure([other.url])
  await calls(10)
  const order = (action: string) => gateway.post('/admin/breakers/flaky/read', { action })
  await order('open')
  await configure([other.url], { ...steady, consecutive: 3 })
  assert.equal((await calls(10)).length, 10)
  await configure([server.url, other.url], { ...steady, consecutive: 4 })
  assert.equal((await calls(10)).length, 10)
  const client = await RawClient.open(gateway.mcp('flaky'))
  assert.equal(await client.say('write'), 'written 1', 'other tools are not held')
  await order('close')
  assert.deepEqual(await calls(10), [])
  await configure([server.url, other.url], steady)
  assert.deepEqual(await calls(10), [])
})

test('a call that waited under an older config replaces no breaker', async () => {
  const held: ServerResponse[] = []
  const server = await RawServer.start(
    ({ message: { method, params } }, response) => {
      if (method !== 'tools/call') return false
      if ((params as Json).name === 'slow') held.push(response)
      else response.writeHead(500).end()
      return true
    },
    ['read', 'slow'],
  )
  const configured = async (concurrent: number, open: string) => {
    const policies = {
      defaults: { retry: false, bulkhead: { concurrent }, breaker: { consecutive: 5, open } },
    }
    await writeFile(
      gateway.file,
      configText({ servers: { raw: { url: server.url, trusted: true } }, policies }),
    )
    assert.equal((await gateway.post('/admin/reload')).status, 200)
    await gateway.waitFor('up', 'raw')
  }
  await configured(1, '30s')
  const client = await RawClient.open(gateway.mcp('raw'))
  const slow = client.call('slow')
  await until('the server has the call', () => held.length === 1)
  const waiting = client.call('read')
  await until('the call waits', async () => {
    const { body } = await gateway.admin<{ bulkhead: Json[] }>('/admin/budgets')
    return body.bulkhead.some(({ waiting }) => waiting === 1)
  })
  await configured(8, '1m')
  for (let n = 0; n < 5; n++) await client.call('read')
  assert.deepEqual(await breakers(), [[0, 'open']])
  held[0]?.end()
  await Promise.all([slow, waiting])
  assert.deepEqual(await breakers(), [[0, 'open']])
  assert.equal((await gateway.post('/admin/breakers/raw/read', { action: 'reset' })).status, 200)
  const { error } = await client.call('read')
  assert.equal((error as { data: Json }).data.reason, 'upstream_status')
})
