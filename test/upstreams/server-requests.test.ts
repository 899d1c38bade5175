import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TestChannel, toolCall } from '../support/caller.ts'
import { lastId, linked } from '../support/linked.ts'

test('a ping of the server is answered at once, under its own id', async () => {
  const { pipe, caller } = await linked()
  void pipe.say('{"jsonrpc":"2.0","id":12345678901234567890,"method":"ping"}')
  assert.equal(pipe.texts.at(-1), '{"jsonrpc":"2.0","id":12345678901234567890,"result":{}}')
  assert.deepEqual(caller.received, [])
})

test('a server that asks without reading is not answered without end', async () => {
  const { pipe } = await linked()
  pipe.full = true
  for (let id = 0; id < 5_000; id++) assert.equal(pipe.say({ id, method: 'ping' }), undefined)
  pipe.full = false
  void pipe.say({ id: 'last', method: 'ping' })
  assert.deepEqual(pipe.answers(), [])
})

test('a request of the server goes through the latest call, and its answer under its own id, once', async () => {
  const { pipe, upstreamSession, caller } = await linked()
  const channels = [new TestChannel(), new TestChannel()] as const
  for (const channel of channels) void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say('{"jsonrpc":"2.0","id":77777777777777777777,"method":"sampling/createMessage","params":{}}')
  const [question] = channels[1].received
  await question?.answer?.('{"jsonrpc":"2.0","id":"any","result":{"role":"assistant","x":1.0}}')
  await question?.answer?.('{"jsonrpc":"2.0","id":"any","result":{"role":"again"}}')
  assert.deepEqual([channels[0].received.length, caller.received.length], [0, 0])
  assert.equal(
    pipe.texts.at(-1),
    '{"jsonrpc":"2.0","id":77777777777777777777,"result":{"role":"assistant","x":1.0}}',
  )
  assert.equal(pipe.answers().length, 1)
})

test('outside of calls a request of the server goes to the caller', async () => {
  const { pipe, caller, upstreamSession } = await linked()
  void pipe.say({ id: 'r1', method: 'roots/list' })
  assert.equal(caller.received[0]?.message.value.method, 'roots/list')
  await upstreamSession.post('{"jsonrpc":"2.0","id":"r1","result":{"roots":[]}}')
  await upstreamSession.post('{"jsonrpc":"2.0","id":"r1","result":{"roots":[]}}')
  await upstreamSession.post('{"jsonrpc":"2.0","id":"r2","result":{"roots":[]}}')
  assert.deepEqual(pipe.answers(), [{ jsonrpc: '2.0', id: 'r1', result: { roots: [] } }])
})

test('a request that the server takes back is taken back where it went', async () => {
  const { pipe, upstreamSession, caller } = await linked()
  const channel = new TestChannel()
  void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 5, method: 'elicitation/create', params: {} })
  const taken = { method: 'notifications/cancelled', params: { requestId: 5 } }
  void pipe.say(taken)
  void pipe.say(taken)
  assert.deepEqual(channel.of('notifications/cancelled').length, 1)
  await channel.received[0]?.answer?.('{"jsonrpc":"2.0","id":1,"result":{}}')
  assert.deepEqual(pipe.answers(), [])
})

test('logs go through a call while there is one, all other notifications to the caller', async () => {
  const { pipe, upstreamSession, caller } = await linked()
  const channel = new TestChannel()
  const logged = { method: 'notifications/message', params: { level: 'info', data: 'x' } }
  void pipe.say(logged)
  const outcome = upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say(logged)
  void pipe.say({ method: 'notifications/tools/list_changed' })
  void pipe.say({ id: lastId(pipe), result: {} })
  await outcome
  void pipe.say(logged)
  assert.deepEqual(channel.received.length, 1)
  const methods = caller.received.map(({ message }) => message.value.method)
  assert.deepEqual(methods, [
    'notifications/message',
    'notifications/tools/list_changed',
    'notifications/message',
  ])
})

test('a request under an id or a progress token that is too long to keep is passed over', async () => {
  const { pipe, caller } = await linked()
  const long = 'x'.repeat(2_000)
  void pipe.say({ id: long, method: 'ping' })
  void pipe.say({ id: long, method: 'roots/list' })
  void pipe.say({ id: 1, method: 'roots/list', params: { _meta: { progressToken: long } } })
  assert.deepEqual([pipe.answers(), caller.received], [[], []])
  void pipe.say({ id: 'x'.repeat(1_000), method: 'roots/list' })
  assert.equal(caller.received.length, 1)
})
