import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../src/mesh/call.ts'
import { newCall, toolCall } from '../support/caller.ts'
import type { Json } from '../support/memory-pipe.ts'
import { answered, shared } from '../support/shared.ts'

function subscription(verb: 'subscribe' | 'unsubscribe', uri: string): Call {
  return newCall({ method: `resources/${verb}`, params: { uri } })
}

function setLevel(level: string): Call {
  return newCall({ method: 'logging/setLevel', params: { level } })
}

const sampling = { id: 's1', method: 'sampling/createMessage', params: {} }

test('only the caller that was asked can answer', async () => {
  const { pipe, join } = await shared()
  const [asked, other] = [join(), join()]
  void asked.upstreamSession.exchange(toolCall('t', {}, { caller: asked.caller }))
  void pipe.say(sampling)
  await other.upstreamSession.post('{"jsonrpc":"2.0","id":"s1","result":{"from":"other"}}')
  await asked.upstreamSession.post('{"jsonrpc":"2.0","id":"s1","result":{"from":"asked"}}')
  assert.deepEqual(
    pipe.answers().map(({ result }) => result),
    [{ from: 'asked' }],
  )
})

test('the process gets the most verbose level that anybody asked for', async () => {
  const { pipe, join } = await shared()
  const [one, two, three] = [join(), join(), join()]
  const told = () => pipe.sent('logging/setLevel').map(({ params }) => (params as Json).level)
  await answered(pipe, one.upstreamSession, setLevel('warning'))
  await answered(pipe, two.upstreamSession, setLevel('info'))
  await answered(pipe, one.upstreamSession, setLevel('emergency'))
  await answered(pipe, three.upstreamSession, setLevel('debug'), {
    error: { code: -32602, message: 'no such level' },
  })
  await answered(pipe, one.upstreamSession, setLevel('no level'), {
    error: { code: -32602, message: 'no such level' },
  })
  assert.deepEqual(told(), ['warning', 'info', 'info', 'debug', 'no level'])
  await two.upstreamSession.close()
  assert.equal(told().at(-1), 'emergency')
})

test('a subscription ends at the server when its last subscriber ends it or leaves', async () => {
  const { pipe, join } = await shared()
  const [one, two, three] = [join(), join(), join()]
  for (const { upstreamSession } of [one, two, three])
    await answered(pipe, upstreamSession, subscription('subscribe', 'file:///a'))
  assert.equal(pipe.sent('resources/subscribe').length, 3)
  const text =
    '{"jsonrpc":"2.0","id":98765432109876543210,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}'
  const outcome = await answered(
    pipe,
    one.upstreamSession,
    newCall({ method: 'resources/unsubscribe', text }),
  )
  assert.ok(outcome.kind === 'answered')
  assert.equal(outcome.result.text, '{"jsonrpc":"2.0","id":98765432109876543210,"result":{}}')
  await two.upstreamSession.close()
  assert.deepEqual(pipe.sent('resources/unsubscribe'), [])
  await answered(pipe, three.upstreamSession, subscription('unsubscribe', 'file:///a'))
  assert.equal(pipe.sent('resources/unsubscribe').length, 1)
  await answered(pipe, three.upstreamSession, subscription('subscribe', 'file:///b'))
  await three.upstreamSession.close()
  assert.deepEqual(pipe.sent('resources/unsubscribe')[1]?.params, { uri: 'file:///b' })
})

test("a shared process hears of no client's roots", async () => {
  const { pipe, join } = await shared()
  const { upstreamSession } = join()
  const before = pipe.texts.length
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
  assert.equal(pipe.texts.length, before)
})

test('a caller that leaves takes its calls along, and nothing of the others', async () => {
  const { pipe, join } = await shared()
  const [leaver, stayer] = [join(), join()]
  const theirs = leaver.upstreamSession.exchange(toolCall('a', {}, { caller: leaver.caller }))
  void pipe.say(sampling)
  const others = stayer.upstreamSession.exchange(toolCall('b', {}, { caller: stayer.caller }))
  await leaver.upstreamSession.close()
  await leaver.upstreamSession.close()
  const failed = await theirs
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'cancelled')
  const [cancelledCall, keptCall] = pipe.sent('tools/call')
  assert.deepEqual(
    pipe.sent('notifications/cancelled').map(({ params }) => (params as Json).requestId),
    [cancelledCall?.id],
  )
  assert.equal((pipe.answers()[0]?.error as Json).code, -32603)
  void pipe.say({ id: keptCall?.id, result: {} })
  assert.equal((await others).kind, 'answered')
  assert.deepEqual(
    [leaver.upstreamSession.ended.aborted, stayer.upstreamSession.ended.aborted, pipe.isClosed],
    [true, false, false],
  )
  const late = await leaver.upstreamSession.exchange(toolCall('c', {}, { caller: leaver.caller }))
  assert.equal(late.kind, 'failed')
  await assert.rejects(leaver.upstreamSession.post('{"jsonrpc":"2.0","method":"x"}'), { reason: 'cancelled' })
})
