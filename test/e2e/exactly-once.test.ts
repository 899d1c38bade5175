import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { dataOf } from './support/keyed-write.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'

let server: FlakyServer
let gateway: Gateway

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start({ servers: { flaky: { url: server.url, trusted: true } } })
  await gateway.waitFor('up', 'flaky')
})
after(cleanUp)

async function write(client: RawClient, key: string, patienceMs = 30_000): Promise<Json | undefined> {
  const params = { name: 'write', arguments: { text: 'a' }, _meta: { 'dev.breakwater/idempotency-key': key } }
  const body = JSON.stringify({ jsonrpc: '2.0', id: `${key}-${Math.random()}`, method: 'tools/call', params })
  const accept = 'application/json, text/event-stream'
  const headers = { 'content-type': 'application/json', accept, ...client.headers }
  const signal = AbortSignal.timeout(patienceMs)
  return fetch(client.url, { method: 'POST', body, signal, headers }).then(
    (response) => response.json() as Promise<Json>,
    () => undefined,
  )
}

test('a write whose client loses patience twice runs once, and the third try gets its answer', async () => {
  await server.behave({ write: { delayMs: 2_000 } })
  const before = await server.count('write')
  // All sessions open before the write, which ends at its own time.
  const open = () => RawClient.open(gateway.mcp('flaky'))
  const [first, second, third] = [await open(), await open(), await open()]
  assert.equal(await write(first, 'order-1', 100), undefined)
  assert.equal(await write(second, 'order-1', 100), undefined)
  const answer = await write(third, 'order-1')
  assert.match(JSON.stringify(answer), /written \d+/)
  assert.deepEqual((await write(first, 'order-1'))?.result, answer?.result)
  assert.equal(await server.count('write'), before + 1)
  await server.behave({ write: {} })
})

test('ten clients with the same key at once run it once', async () => {
  const before = await server.count('write')
  const clients = await Promise.all(Array.from({ length: 10 }, () => RawClient.open(gateway.mcp('flaky'))))
  const answers = await Promise.all(clients.map((client) => write(client, 'order-2')))
  assert.equal(new Set(answers.map((answer) => JSON.stringify(answer?.result))).size, 1)
  assert.equal(await server.count('write'), before + 1)
})

/** Sends a write under a key: in its own session, because each token needs one, or in the era without sessions. */
const eras: Readonly<Record<string, (key: string, headers: Record<string, string>) => Promise<Json>>> = {
  '2025': async (key, headers) =>
    (await write(await RawClient.open(gateway.mcp('flaky'), { headers }), key)) ?? {},
  '2026': async (key, headers) => {
    const client = new ModernClient(gateway.mcp('flaky'))
    const _meta = { ...client.meta, 'dev.breakwater/idempotency-key': key }
    const params = { name: 'write', arguments: { text: 'a' }, _meta }
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/call', params }
    return (await client.post(body, headers)).messages.at(-1) ?? {}
  },
}

for (const [era, send] of Object.entries(eras)) {
  test(`${era}: a write that is sent again with a refreshed token runs once, and its answer is for the tenant that is named`, async () => {
    const before = await server.count('write')
    const tenant = { 'x-breakwater-tenant': 'acme' }
    const first = await send(`acme-${era}`, { ...tenant, authorization: 'Bearer a' })
    assert.match(JSON.stringify(first.result), /written/)
    const again = await send(`acme-${era}`, { ...tenant, authorization: 'Bearer b' })
    assert.deepEqual(again.result, first.result)
    assert.equal(await server.count('write'), before + 1)
    const other = await send(`acme-${era}`, { 'x-breakwater-tenant': 'other', authorization: 'Bearer a' })
    assert.match(JSON.stringify(other.result), /written/)
    assert.notDeepEqual(other.result, first.result)
    assert.equal(await server.count('write'), before + 2)
  })

  test(`${era}: without a tenant a refreshed token runs no write again, and another agent's token gets no answer of it`, async () => {
    const before = await server.count('write')
    const first = await send(`own-${era}`, { authorization: 'Bearer a' })
    assert.match(JSON.stringify(first.result), /written/)
    for (const headers of [{ authorization: 'Bearer b' }, {}]) {
      const other = await send(`own-${era}`, headers)
      assert.equal(other.result, undefined)
      assert.deepEqual([dataOf(other).reason, dataOf(other).sent], ['idempotency_conflict', true])
      assert.doesNotMatch(JSON.stringify(other), /written/)
    }
    assert.deepEqual((await send(`own-${era}`, { authorization: 'Bearer a' })).result, first.result)
    assert.equal(await server.count('write'), before + 1)
  })
}

test('an agent that uses up its keys is refused with the reason, and loses no key of another agent', async () => {
  const crowded = await Gateway.start({
    servers: { flaky: { url: server.url } },
    policies: { defaults: { idempotency: { maxKeys: 100 } } },
  })
  await crowded.waitFor('up', 'flaky')
  const open = (tenant: string) =>
    RawClient.open(crowded.mcp('flaky'), { headers: { 'x-breakwater-tenant': tenant } })
  const [a, b] = [await open('a'), await open('b')]
  const before = await server.count('write')
  const first = await write(a, 'order')
  let refused = 0
  for (let n = 0; n < 105; n++) {
    const { error } = (await write(b, `k${n}`)) ?? {}
    if (error === undefined) continue
    const { data, message } = error as { data: Json; message: string }
    assert.deepEqual([data.reason, data.sent, data.retryable], ['idempotency_full', false, true])
    assert.match(message, /so the call was not run: .*; try again in \d/)
    assert.ok(Number(data.retryAfterMs) > 0)
    refused++
  }
  const runs = (await server.count('write')) - before
  assert.ok(runs > 1 && runs < 100)
  assert.equal(refused, 106 - runs)
  assert.deepEqual((await write(a, 'order'))?.result, first?.result)
  assert.equal(await server.count('write'), before + runs)
  const counted = await crowded.sums('breakwater_idempotency_refused_total', 'server', 'server="flaky"')
  assert.deepEqual(counted, { flaky: refused })
  await until('the other agent has a place for a new key', async () => {
    return (await write(a, 'order-2'))?.result !== undefined
  })
})

test('a write that broke off may have run: nobody runs it again, with a key or without', async () => {
  await server.behave({ write: { reset: 1 } })
  const client = await RawClient.open(gateway.mcp('flaky'))
  const before = await server.count('write')
  const failed = (await client.call('write')).error as { data: Json }
  assert.equal(failed.data.sent, true)
  assert.equal(await server.count('write'), before + 1)
  for (let n = 0; n < 3; n++) {
    const { data } = (await write(client, 'order-3'))?.error as { data: Json }
    assert.equal(data.sent, true)
  }
  assert.equal(await server.count('write'), before + 2)
  assert.equal(await gateway.metric('breakwater_retries_total', 'decision="unsafe"'), 2)
  await server.behave({ write: {} })
})

test('a read that breaks off is run again at once', async () => {
  await server.behave({ read: { reset: 0.34 } })
  const client = await RawClient.open(gateway.mcp('flaky'))
  for (let n = 0; n < 6; n++) assert.match(await client.say('read'), /^read by/)
  await server.behave({ read: {} })
})

test('a write to a lost server was never sent', async () => {
  server.program.signal('SIGKILL')
  await server.program.ended
  const client = await RawClient.open(gateway.mcp())
  await until('calls are refused', async () => {
    const { data } = (await client.call('flaky__write')).error as { data: Json }
    return data.sent === false
  })
})
