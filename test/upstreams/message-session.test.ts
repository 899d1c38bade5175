import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { newCall, toolCall } from '../support/caller.ts'
import { lastId, linked } from '../support/linked.ts'

test('a request travels under a number of ours, and everything else as it was written', async () => {
  const { pipe, upstreamSession } = await linked()
  const text =
    '{"x-unknown":[1.0,12345678901234567890],"params":{"name":"t","b":1,"a":2},"method":"tools/call","id":"mine","jsonrpc":"2.0"}'
  const call = newCall({ method: 'tools/call', text })
  const outcome = upstreamSession.exchange(call)
  const id = lastId(pipe)
  assert.equal(typeof id, 'number')
  assert.equal(pipe.texts.at(-1), text.replace('"mine"', String(id)))
  assert.equal(call.record.sent, true)
  void pipe.say(
    `{"jsonrpc":"2.0","result":{"z":1.50,"n":98765432109876543210},"x-more":null,"id":${String(id)}}`,
  )
  assert.deepEqual(await outcome, {
    kind: 'answered',
    result: {
      text: '{"jsonrpc":"2.0","result":{"z":1.50,"n":98765432109876543210},"x-more":null,"id":"mine"}',
      value: { jsonrpc: '2.0', result: { z: 1.5, n: 98765432109876543210 }, 'x-more': null, id: 'mine' },
      status: 200,
    },
    verdict: 'unchecked',
  })
})

test("a caller's id that is too large for a number comes back digit by digit", async () => {
  const { pipe, upstreamSession } = await linked()
  const text = '{"jsonrpc":"2.0","id":123456789012345678901,"method":"tools/call","params":{"name":"t"}}'
  const outcome = upstreamSession.exchange(newCall({ method: 'tools/call', text }))
  void pipe.say({ id: lastId(pipe), result: {} })
  const answered = await outcome
  assert.ok(answered.kind === 'answered' && answered.result.text.includes('"id":123456789012345678901'))
})

test('errors and failed tools are answers with a verdict', async () => {
  const { pipe, upstreamSession } = await linked()
  const verdict = async (rest: Record<string, unknown>) => {
    const outcome = upstreamSession.exchange(toolCall('t'))
    void pipe.say({ id: lastId(pipe), ...rest })
    const answered = await outcome
    return answered.kind === 'answered' && answered.verdict
  }
  assert.equal(await verdict({ error: { code: -32602, message: 'unknown tool' } }), 'rpc_error')
  assert.equal(await verdict({ result: { isError: true, content: [] } }), 'tool_error')
  assert.equal(await verdict({ result: { content: [] } }), 'unchecked')
})

test('calls under the same id of different callers get their own answers, in any order', async () => {
  const { pipe, upstreamSession } = await linked()
  const first = upstreamSession.exchange(toolCall('a', {}, { id: 1 }))
  const firstId = lastId(pipe)
  const second = upstreamSession.exchange(toolCall('b', {}, { id: 1 }))
  void pipe.say({ id: lastId(pipe), result: { of: 'b' } })
  void pipe.say({ id: firstId, result: { of: 'a' } })
  const results = (await Promise.all([first, second])).map(
    (o) => o.kind === 'answered' && o.result.value.result,
  )
  assert.deepEqual(results, [{ of: 'a' }, { of: 'b' }])
})

test('an aborted call ends at once with the reason, and the server is told', async () => {
  const { pipe, upstreamSession } = await linked()
  const patience = new AbortController()
  const outcome = upstreamSession.exchange(toolCall('slow', {}, { signal: patience.signal }))
  patience.abort(gatewayError('attempt_timeout', 'no answer within 5 ms'))
  assert.deepEqual(await outcome, {
    kind: 'failed',
    error: gatewayError('attempt_timeout', 'no answer within 5 ms', { sent: true }),
  })
  assert.deepEqual(pipe.sent('notifications/cancelled')[0]?.params, {
    requestId: lastId(pipe),
    reason: 'no answer within 5 ms',
  })
  void pipe.say({ id: lastId(pipe), result: {} })
})

test('a call that was aborted before its turn was never sent', async () => {
  const { pipe, upstreamSession } = await linked()
  const patience = new AbortController()
  pipe.full = true
  const call = toolCall('t', {}, { signal: patience.signal })
  const outcome = upstreamSession.exchange(call)
  patience.abort(gatewayError('cancelled', 'the agent left'))
  const failed = await outcome
  assert.ok(failed.kind === 'failed' && !failed.error.sent && !call.record.sent)
  const late = await upstreamSession.exchange(toolCall('t', {}, { signal: patience.signal }))
  assert.ok(late.kind === 'failed' && late.error.reason === 'cancelled' && !late.error.sent)
  assert.deepEqual(pipe.sent('notifications/cancelled'), [])
})

test('when the pipe ends, so do its calls: those that were sent may have run', async () => {
  const { pipe, upstreamSession } = await linked()
  const sent = upstreamSession.exchange(toolCall('a'))
  pipe.full = true
  const waiting = upstreamSession.exchange(toolCall('b'))
  pipe.end(gatewayError('upstream_disconnected', 'gone', { sent: true }))
  const errors = (await Promise.all([sent, waiting])).map(
    (o) => o.kind === 'failed' && [o.error.reason, o.error.sent],
  )
  assert.deepEqual(errors, [
    ['upstream_disconnected', true],
    ['upstream_disconnected', false],
  ])
  assert.equal(upstreamSession.ended.aborted, true)
  assert.equal(upstreamSession.ended.reason.reason, 'upstream_disconnected')
  const late = await upstreamSession.exchange(toolCall('c'))
  assert.ok(late.kind === 'failed' && late.error.reason === 'upstream_disconnected' && !late.error.sent)
  await assert.rejects(upstreamSession.post('{"jsonrpc":"2.0","method":"x"}'), {
    reason: 'upstream_disconnected',
  })
})

test('closing ends the calls in flight, and can be done twice', async () => {
  const { pipe, upstreamSession } = await linked()
  const outcome = upstreamSession.exchange(toolCall('t'))
  await Promise.all([upstreamSession.close(), upstreamSession.close()])
  const failed = await outcome
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'cancelled' && failed.error.sent)
  assert.ok(pipe.isClosed && upstreamSession.ended.aborted)
})

test('only messages a caller may send are passed on', async () => {
  const { pipe, upstreamSession } = await linked()
  const before = pipe.texts.length
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/initialized"}')
  await upstreamSession.post('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
  await upstreamSession.post(
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the server","progress":1.0}}',
  )
  const methods = pipe.texts.slice(before).map((text) => (JSON.parse(text) as { method: string }).method)
  assert.deepEqual(methods, ['notifications/roots/list_changed', 'notifications/progress'])
})

test('a server that does not read is not sent notifications without end', async () => {
  const { pipe, upstreamSession } = await linked()
  pipe.full = true
  const news = '{"jsonrpc":"2.0","method":"notifications/vendor/news"}'
  for (let i = 0; i < 1_024; i++) void upstreamSession.post(news)
  await assert.rejects(upstreamSession.post(news), { reason: 'overloaded', sent: false })
})
