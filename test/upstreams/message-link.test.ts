import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import type { Caller } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { soloAudience } from '../../src/upstreams/audience.ts'
import { MessageLink } from '../../src/upstreams/message-link.ts'
import { capableHello, newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { recordedLog, silent } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { MemoryPipe } from '../support/memory-pipe.ts'

const never = new AbortController().signal

function openOn(pipe: MemoryPipe, caller: Caller = new TestCaller(), signal = never, log = silent) {
  const clock = new ManualClock()
  const terms = { server: 'test', hello: caller.hello, audience: soloAudience('test', caller), clock, log }
  return MessageLink.open(pipe.connect, terms, signal)
}

/** A link whose handshake is done. */
async function linked({ caller = new TestCaller(), log = silent } = {}) {
  const pipe = new MemoryPipe()
  const link = await openOn(pipe, caller, never, log)
  return { pipe, link, caller }
}

/** The id under which the latest request of this method was sent. */
function lastId(pipe: MemoryPipe, method = 'tools/call'): unknown {
  return pipe.sent(method).at(-1)?.id
}

test('the handshake says hello for the caller and tells the server that it is done', async () => {
  const { pipe, link } = await linked()
  assert.deepEqual(pipe.sent('initialize')[0]?.params, capableHello)
  assert.equal(pipe.sent('notifications/initialized').length, 1)
  assert.equal(link.greeting.value.protocolVersion, '2025-11-25')
  assert.deepEqual(JSON.parse(link.greeting.text), link.greeting.value)
})

test('a server that refuses the handshake is not spoken to', async () => {
  const pipe = new MemoryPipe({ error: { code: -32000, message: 'no room' } })
  await assert.rejects(openOn(pipe), { reason: 'upstream_refused', message: /no room/, sent: false })
  assert.ok(pipe.isClosed)
})

test('a server of an unknown version is not spoken to', async () => {
  const pipe = new MemoryPipe({ result: { protocolVersion: '1999-01-01', capabilities: {} } })
  await assert.rejects(openOn(pipe), { reason: 'upstream_refused', message: /1999-01-01/ })
  assert.ok(pipe.isClosed)
})

test('a handshake can be given up', async () => {
  const pipe = new MemoryPipe('none')
  const patience = new AbortController()
  const opening = openOn(pipe, new TestCaller(), patience.signal)
  await setImmediate()
  const reason = gatewayError('attempt_timeout', 'too slow')
  patience.abort(reason)
  await assert.rejects(opening, reason)
  assert.ok(pipe.isClosed)
})

test('a server that goes away during the handshake is unavailable, and nothing was sent', async () => {
  const pipe = new MemoryPipe('none')
  const opening = openOn(pipe)
  await setImmediate()
  pipe.end()
  await assert.rejects(opening, { reason: 'upstream_unavailable', sent: false })
})

test('a request travels under a number of ours, and everything else as it was written', async () => {
  const { pipe, link } = await linked()
  const text =
    '{"x-unknown":[1.0,12345678901234567890],"params":{"name":"t","b":1,"a":2},"method":"tools/call","id":"mine","jsonrpc":"2.0"}'
  const call = newCall({ method: 'tools/call', text })
  const outcome = link.exchange(call)
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
  const { pipe, link } = await linked()
  const text = '{"jsonrpc":"2.0","id":123456789012345678901,"method":"tools/call","params":{"name":"t"}}'
  const outcome = link.exchange(newCall({ method: 'tools/call', text }))
  void pipe.say({ id: lastId(pipe), result: {} })
  const answered = await outcome
  assert.ok(answered.kind === 'answered' && answered.result.text.includes('"id":123456789012345678901'))
})

test('errors and failed tools are answers with a verdict', async () => {
  const { pipe, link } = await linked()
  const verdict = async (rest: Record<string, unknown>) => {
    const outcome = link.exchange(toolCall('t'))
    void pipe.say({ id: lastId(pipe), ...rest })
    const answered = await outcome
    return answered.kind === 'answered' && answered.verdict
  }
  assert.equal(await verdict({ error: { code: -32602, message: 'unknown tool' } }), 'rpc_error')
  assert.equal(await verdict({ result: { isError: true, content: [] } }), 'tool_error')
  assert.equal(await verdict({ result: { content: [] } }), 'unchecked')
})

test('calls under the same id of different callers get their own answers, in any order', async () => {
  const { pipe, link } = await linked()
  const first = link.exchange(toolCall('a', {}, { id: 1 }))
  const firstId = lastId(pipe)
  const second = link.exchange(toolCall('b', {}, { id: 1 }))
  void pipe.say({ id: lastId(pipe), result: { of: 'b' } })
  void pipe.say({ id: firstId, result: { of: 'a' } })
  const results = (await Promise.all([first, second])).map(
    (o) => o.kind === 'answered' && o.result.value.result,
  )
  assert.deepEqual(results, [{ of: 'a' }, { of: 'b' }])
})

test('an answer that nobody waits for is discarded', async () => {
  const { log, lines } = recordedLog()
  const { pipe, link } = await linked({ log })
  const outcome = link.exchange(toolCall('t'))
  const id = lastId(pipe)
  for (const stray of [4_711, 'one', null, -1])
    void pipe.say({ id: stray, error: { code: 1, message: 'stray' } })
  void pipe.say({ id, result: { first: true } })
  void pipe.say({ id, result: { first: false } })
  const answered = await outcome
  assert.deepEqual(answered.kind === 'answered' && answered.result.value.result, { first: true })
  assert.equal(lines.filter(({ msg }) => msg === 'discarded an answer that nobody waits for').length, 5)
})

test('an answer that is no JSON-RPC ends the call it is meant for', async () => {
  const { pipe, link } = await linked()
  for (const rest of [{ result: 'text' }, {}, { result: {}, error: {} }]) {
    const outcome = link.exchange(toolCall('t'))
    void pipe.say({ id: lastId(pipe), ...rest })
    const failed = await outcome
    assert.ok(failed.kind === 'failed' && failed.error.reason === 'bad_reply' && failed.error.sent)
  }
})

test("progress comes back under the caller's own token, and only to a caller that asked for it", async () => {
  const { pipe, link } = await linked()
  const channel = new TestChannel()
  const text =
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"tok","x":1.0}}}'
  void link.exchange(newCall({ method: 'tools/call', text, channel }))
  const token = (pipe.sent('tools/call')[0]?.params as { _meta: { progressToken: unknown } })._meta
    .progressToken
  assert.equal(typeof token, 'number')
  assert.ok(pipe.texts.at(-1)?.includes('"x":1.0'))
  void pipe.say(
    `{"method":"notifications/progress","params":{"progress":1.0,"progressToken":${String(token)}},"jsonrpc":"2.0"}`,
  )
  assert.deepEqual(channel.received, [
    {
      message: {
        text: '{"method":"notifications/progress","params":{"progress":1.0,"progressToken":"tok"},"jsonrpc":"2.0"}',
        value: {
          method: 'notifications/progress',
          params: { progress: 1, progressToken: 'tok' },
          jsonrpc: '2.0',
        },
      },
      answer: undefined,
    },
  ])
  const silentChannel = new TestChannel()
  void link.exchange(toolCall('t', {}, { channel: silentChannel }))
  void pipe.say({ method: 'notifications/progress', params: { progressToken: lastId(pipe), progress: 1 } })
  void pipe.say({ method: 'notifications/progress', params: { progressToken: 'unknown', progress: 1 } })
  assert.deepEqual([channel.received.length, silentChannel.received.length], [1, 0])
})

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
  const { pipe, link, caller } = await linked()
  const channels = [new TestChannel(), new TestChannel()] as const
  for (const channel of channels) void link.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say('{"jsonrpc":"2.0","id":77777777777777777777,"method":"sampling/createMessage","params":{}}')
  const [asked] = channels[1].received
  await asked?.answer?.('{"jsonrpc":"2.0","id":"any","result":{"role":"assistant","x":1.0}}')
  await asked?.answer?.('{"jsonrpc":"2.0","id":"any","result":{"role":"again"}}')
  assert.deepEqual([channels[0].received.length, caller.received.length], [0, 0])
  assert.equal(
    pipe.texts.at(-1),
    '{"jsonrpc":"2.0","id":77777777777777777777,"result":{"role":"assistant","x":1.0}}',
  )
  assert.equal(pipe.answers().length, 1)
})

test('outside of calls a request of the server goes to the caller', async () => {
  const { pipe, caller, link } = await linked()
  void pipe.say({ id: 'r1', method: 'roots/list' })
  assert.equal(caller.received[0]?.message.value.method, 'roots/list')
  await link.post('{"jsonrpc":"2.0","id":"r1","result":{"roots":[]}}')
  await link.post('{"jsonrpc":"2.0","id":"r1","result":{"roots":[]}}')
  await link.post('{"jsonrpc":"2.0","id":"r2","result":{"roots":[]}}')
  assert.deepEqual(pipe.answers(), [{ jsonrpc: '2.0', id: 'r1', result: { roots: [] } }])
})

test('a request that the server takes back is taken back where it went', async () => {
  const { pipe, link, caller } = await linked()
  const channel = new TestChannel()
  void link.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 5, method: 'elicitation/create', params: {} })
  const taken = { method: 'notifications/cancelled', params: { requestId: 5 } }
  void pipe.say(taken)
  void pipe.say(taken)
  assert.deepEqual(channel.of('notifications/cancelled').length, 1)
  await channel.received[0]?.answer?.('{"jsonrpc":"2.0","id":1,"result":{}}')
  assert.deepEqual(pipe.answers(), [])
})

test('logs go through a call while there is one, all other notifications to the caller', async () => {
  const { pipe, link, caller } = await linked()
  const channel = new TestChannel()
  const logged = { method: 'notifications/message', params: { level: 'info', data: 'x' } }
  void pipe.say(logged)
  const outcome = link.exchange(toolCall('t', {}, { caller, channel }))
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

test('an aborted call ends at once with the reason, and the server is told', async () => {
  const { pipe, link } = await linked()
  const patience = new AbortController()
  const outcome = link.exchange(toolCall('slow', {}, { signal: patience.signal }))
  patience.abort(gatewayError('attempt_timeout', 'no answer within 5 ms'))
  assert.deepEqual(await outcome, {
    kind: 'failed',
    error: {
      reason: 'attempt_timeout',
      message: 'no answer within 5 ms',
      sent: true,
      retryAfterMs: undefined,
    },
  })
  assert.deepEqual(pipe.sent('notifications/cancelled')[0]?.params, {
    requestId: lastId(pipe),
    reason: 'no answer within 5 ms',
  })
  void pipe.say({ id: lastId(pipe), result: {} })
})

test('a call that was aborted before its turn was never sent', async () => {
  const { pipe, link } = await linked()
  const patience = new AbortController()
  pipe.full = true
  const call = toolCall('t', {}, { signal: patience.signal })
  const outcome = link.exchange(call)
  patience.abort(gatewayError('cancelled', 'the agent left'))
  const failed = await outcome
  assert.ok(failed.kind === 'failed' && !failed.error.sent && !call.record.sent)
  const late = await link.exchange(toolCall('t', {}, { signal: patience.signal }))
  assert.ok(late.kind === 'failed' && late.error.reason === 'cancelled' && !late.error.sent)
  assert.deepEqual(pipe.sent('notifications/cancelled'), [])
})

test('when the pipe ends, so do its calls: those that were sent may have run', async () => {
  const { pipe, link } = await linked()
  const sent = link.exchange(toolCall('a'))
  pipe.full = true
  const waiting = link.exchange(toolCall('b'))
  pipe.end(gatewayError('upstream_disconnected', 'gone', { sent: true }))
  const errors = (await Promise.all([sent, waiting])).map(
    (o) => o.kind === 'failed' && [o.error.reason, o.error.sent],
  )
  assert.deepEqual(errors, [
    ['upstream_disconnected', true],
    ['upstream_disconnected', false],
  ])
  assert.equal(link.ended.aborted, true)
  assert.equal(link.ended.reason.reason, 'upstream_disconnected')
  const late = await link.exchange(toolCall('c'))
  assert.ok(late.kind === 'failed' && late.error.reason === 'upstream_disconnected' && !late.error.sent)
  await assert.rejects(link.post('{"jsonrpc":"2.0","method":"x"}'), { reason: 'upstream_disconnected' })
})

test('closing ends the calls in flight, and can be done twice', async () => {
  const { pipe, link } = await linked()
  const outcome = link.exchange(toolCall('t'))
  await Promise.all([link.close(), link.close()])
  const failed = await outcome
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'cancelled' && failed.error.sent)
  assert.ok(pipe.isClosed && link.ended.aborted)
})

test('a slow channel holds up what comes next, for as long as its call is in flight', async () => {
  const { pipe, link, caller } = await linked()
  const channel = new TestChannel()
  const patience = new AbortController()
  void link.exchange(toolCall('t', {}, { caller, channel, signal: patience.signal }))
  channel.hold()
  const logged = { method: 'notifications/message', params: { level: 'info', data: 'x' } }
  let states = ''
  void pipe.say(logged)?.then(() => (states += 'released '))
  await setImmediate()
  assert.equal(states, '')
  channel.release()
  await setImmediate()
  assert.equal(states, 'released ')
  channel.hold()
  void pipe.say(logged)?.then(() => (states += 'given up'))
  patience.abort(gatewayError('cancelled', 'the agent left'))
  await setImmediate()
  assert.equal(states, 'released given up')
})

test('only what is for the caller to say is passed on', async () => {
  const { pipe, link } = await linked()
  const before = pipe.texts.length
  await link.post('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
  await link.post('{"jsonrpc":"2.0","method":"notifications/initialized"}')
  await link.post('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
  await link.post(
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the server","progress":1.0}}',
  )
  const methods = pipe.texts.slice(before).map((text) => (JSON.parse(text) as { method: string }).method)
  assert.deepEqual(methods, ['notifications/roots/list_changed', 'notifications/progress'])
})

test('noise is skipped, and logged a few times a second at most', async () => {
  const { log, lines } = recordedLog()
  const { pipe, link } = await linked({ log })
  const outcome = link.exchange(toolCall('t'))
  for (let i = 0; i < 100; i++) void pipe.say(`not JSON ${'x'.repeat(10_000)}`)
  for (const noise of ['', ' ', '7', 'null', '"text"', '{"jsonrpc":"1.0"}', '{}']) void pipe.say(noise)
  void pipe.say({ id: lastId(pipe), result: {} })
  assert.equal((await outcome).kind, 'answered')
  const skipped = lines.filter(({ msg }) => msg === 'skipped what is no JSON-RPC message')
  assert.equal(skipped.length, 5)
  assert.ok(skipped.every(({ excerpt }) => String(excerpt).length <= 200))
})

test('the messages of a batch are taken one by one', async () => {
  const { pipe, link } = await linked()
  const first = link.exchange(toolCall('a'))
  const firstId = lastId(pipe)
  const second = link.exchange(toolCall('b'))
  await pipe.say(
    `[{"jsonrpc":"2.0","id":${String(firstId)},"result":{"n":1.0}}, 7, {"jsonrpc":"2.0","id":${String(lastId(pipe))},"result":{}}]`,
  )
  const outcomes = await Promise.all([first, second])
  assert.deepEqual(
    outcomes.map(({ kind }) => kind),
    ['answered', 'answered'],
  )
  assert.ok(outcomes[0].kind === 'answered' && outcomes[0].result.text.includes('1.0'))
})

test('a reply over the limit ends its call, and no other', async () => {
  const { pipe, link } = await linked()
  const large = link.exchange(toolCall('large'))
  const largeId = lastId(pipe)
  const small = link.exchange(toolCall('small'))
  pipe.overlong(largeId as number)
  pipe.overlong(undefined)
  pipe.overlong(4_711)
  const failed = await large
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'reply_too_large' && failed.error.sent)
  void pipe.say({ id: lastId(pipe), result: {} })
  assert.equal((await small).kind, 'answered')
})
