import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

let servers: readonly FlakyServer[]
let gateway: Gateway

before(async () => {
  servers = await Promise.all([FlakyServer.start(), FlakyServer.start()])
  const urls = servers.map(({ url }) => url)
  gateway = await Gateway.start({
    servers: { one: { url: urls[0] }, pair: { urls } },
    policies: { defaults: { breaker: { open: '10m', maxOpen: '10m' } } },
  })
  await gateway.waitFor('up', 'one', 'pair')
})
beforeEach(async () => {
  await behave({})
  for (const name of ['one', 'pair'])
    for (const tool of ['read', 'typed'])
      await gateway.post(`/admin/breakers/${name}/${tool}`, { action: 'reset' })
})
after(cleanUp)

async function behave(behaviour: Json): Promise<void> {
  await Promise.all(servers.map((server) => server.behave({ read: behaviour, typed: behaviour })))
}

const open = (name: string) => RawClient.open(gateway.mcp(name))

const reasonOf = ({ error }: Json) => (error as { data: Json } | undefined)?.data.reason

const refusals = new Map([
  [401, 'upstream_unauthorized'],
  [403, 'upstream_forbidden'],
])

for (const status of [400, 401, 403, 404, 409, 413, 422])
  test(`twenty calls of one caller that end with HTTP ${status} do not stop another`, async () => {
    await behave({ failing: 1, status })
    for (const name of ['one', 'pair']) {
      const caller = await open(name)
      const reasons = new Set<unknown>()
      for (let n = 0; n < 20; n++) reasons.add(reasonOf(await caller.call('read')))
      assert.deepEqual([...reasons], [refusals.get(status) ?? 'upstream_refused'])
    }
    await behave({})
    for (const name of ['one', 'pair']) {
      const other = await open(name)
      for (let n = 0; n < 5; n++) assert.match(await other.say('read'), /^read by/)
    }
    assert.deepEqual(await gateway.sums('breakwater_policy_events_total', 'type', 'type="ejection"'), {})
  })

test('a failing server still opens its breaker', async () => {
  await behave({ failing: 1, status: 500 })
  const caller = await open('one')
  const reasons: unknown[] = []
  for (let n = 0; n < 6; n++) reasons.push(reasonOf(await caller.call('read')))
  assert.deepEqual(reasons, [...new Array<string>(5).fill('upstream_status'), 'breaker_open'])
})

test('failures of arguments that break the schema do not stop calls with valid arguments', async () => {
  await behave({ failing: 1, status: 500 })
  const caller = await open('one')
  // Schemas are compiled beside the calls.
  for (let n = 0; n < 20; n++) {
    await caller.call('typed', { n: 'not a number' })
    await gateway.post('/admin/breakers/one/typed', { action: n < 10 ? 'reset' : 'none' })
  }
  await behave({})
  assert.equal(await (await open('one')).say('typed', { n: 1 }), '{"n":1}')
})

test('callers with deadlines of 300 ms to 2 s do not keep a patient caller from a slow tool', async () => {
  await behave({ delayMs: 3_000 })
  for (const name of ['one', 'pair']) {
    // Handshakes happen first, so they do not count as waiting.
    const callers = await Promise.all(Array.from({ length: 16 }, () => open(name)))
    const hurried = await Promise.all(
      callers.map(async (caller, n) => {
        const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'read', arguments: {} } }
        const headers = { 'x-breakwater-deadline-ms': String(300 + (n % 8) * 240) }
        return reasonOf((await caller.post(call, headers)).messages[0] ?? {})
      }),
    )
    assert.deepEqual(new Set(hurried), new Set(['deadline_exceeded']))
    assert.match(await (await open(name)).say('read'), /^read by/)
  }
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  assert.deepEqual(new Set(body.map(({ state }) => state)), new Set(['closed']))
})
