import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { RawClient } from './support/raw-client.ts'

let server: FlakyServer
let gateway: Gateway
let client: RawClient

before(async () => {
  server = await FlakyServer.start()
  gateway = await Gateway.start({
    servers: { flaky: { url: server.url } },
    policies: { defaults: { breaker: { open: '1s', maxOpen: '2s' } } },
  })
  await gateway.waitFor('up', 'flaky')
  client = await RawClient.open(gateway.mcp('flaky'))
})
after(cleanUp)

const errorOf = async () => ((await client.call('typed')).error as { data: Json } | undefined)?.data

test('a tool that answers fast and wrong is stopped by its correctness, and comes back when it is right again', async () => {
  await server.behave({ typed: { invalid: 0.6 } })
  await until('the breaker opens', async () => (await errorOf())?.reason === 'breaker_open')
  const { body } = await gateway.admin<Json[]>('/admin/breakers')
  const breaker = body.find(({ tool }) => tool === 'typed')
  assert.equal(breaker?.state, 'open')
  assert.equal(breaker?.dimension, 'correctness')
  const opened = 'dimension="correctness",state="open"'
  assert.equal(await gateway.metric('breakwater_breaker_transitions_total', opened), 1)
  assert.ok(
    ((await gateway.metric('breakwater_upstream_attempts_total', 'verdict="schema_invalid"')) ?? 0) >= 5,
  )

  const refused = await errorOf()
  assert.equal(refused?.sent, false)
  assert.ok(Number(refused?.retryAfterMs) > 0)
  const before = await server.count('typed')
  await errorOf()
  assert.equal(await server.count('typed'), before, 'an open breaker sends nothing')
  assert.equal(await client.say('read').then((text) => text.startsWith('read')), true)

  await server.behave({ typed: {} })
  await until('the breaker closes by itself', async () => (await errorOf()) === undefined)
  for (let n = 0; n < 20; n++) assert.equal(await errorOf(), undefined)
})

test('an operator opens a breaker and closes it again', async () => {
  const order = (action: string) => gateway.post('/admin/breakers/flaky/typed', { action })
  assert.equal((await order('open')).status, 200)
  assert.equal((await errorOf())?.reason, 'breaker_open')
  assert.equal((await order('close')).status, 200)
  assert.equal(await errorOf(), undefined)
  assert.equal((await order('explode')).status, 400)
  assert.equal((await gateway.post('/admin/breakers/flaky/nothing', { action: 'open' })).status, 404)
})
