import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { MAX_MEMBERS } from '../../src/protocol/json-parse.ts'
import { newCall, TestChannel, toolCall } from '../support/caller.ts'
import { lastId, linked, openOn } from '../support/linked.ts'
import { recordedLog } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { MemoryPipe } from '../support/memory-pipe.ts'

test('an answer that nobody waits for is discarded', async () => {
  const { log, lines } = recordedLog()
  const { pipe, upstreamSession } = await linked({ log })
  const outcome = upstreamSession.exchange(toolCall('t'))
  const id = lastId(pipe)
  for (const stray of [4_711, 'one', null, -1])
    void pipe.say({ id: stray, error: { code: 1, message: 'stray' } })
  void pipe.say({ id, result: { first: true } })
  void pipe.say({ id, result: { first: false } })
  const answered = await outcome
  assert.deepEqual(answered.kind === 'answered' && answered.result.value.result, { first: true })
  assert.equal(lines.filter(({ msg }) => msg === 'discarded an answer without a waiting call').length, 5)
})

test('an id and a progress token that come back as text are ours all the same', async () => {
  const { pipe, upstreamSession } = await linked()
  const channel = new TestChannel()
  const text =
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"tok"}}}'
  const outcome = upstreamSession.exchange(newCall({ method: 'tools/call', text, channel }))
  const id = String(lastId(pipe))
  void pipe.say({ method: 'notifications/progress', params: { progressToken: id, progress: 1 } })
  for (const other of [`0${id}`, `${id}.0`, '', `${id} `]) void pipe.say({ id: other, result: {} })
  void pipe.say({ id, result: { n: 1 } })
  const answered = await outcome
  assert.deepEqual(
    channel.received.map(({ message }) => message.value.params),
    [{ progressToken: 'tok', progress: 1 }],
  )
  assert.ok(answered.kind === 'answered')
  assert.deepEqual(answered.result.value, { jsonrpc: '2.0', id: 7, result: { n: 1 } })
})

test('an answer that is no JSON-RPC ends the call it is meant for', async () => {
  const { pipe, upstreamSession } = await linked()
  for (const rest of [{ result: 'text' }, {}, { result: {}, error: {} }]) {
    const outcome = upstreamSession.exchange(toolCall('t'))
    void pipe.say({ id: lastId(pipe), ...rest })
    const failed = await outcome
    assert.ok(failed.kind === 'failed' && failed.error.reason === 'bad_reply' && failed.error.sent)
  }
})

test('an answer that cannot be read ends the call that it names, or else the only one', async () => {
  const { pipe, upstreamSession } = await linked()
  const spoiled = (id: string) => [
    `{"jsonrpc":"2.0","id":${id},"result":{"value":NaN}}`,
    `{"result":{"value":Infinity},"jsonrpc":"2.0","id":${id}}`,
    `{"jsonrpc":"2.0","id":${id},"result":{"content":[{"type":"text","text":"half`,
    `{"error":{"code":-1,"message":"commas",},"jsonrpc":"2.0","id":${id},}`,
  ]
  for (const [nth] of spoiled('').entries()) {
    const other = upstreamSession.exchange(toolCall('other'))
    const otherId = lastId(pipe)
    const outcome = upstreamSession.exchange(toolCall('t'))
    void pipe.say(spoiled(String(lastId(pipe)))[nth] as string)
    const failed = await outcome
    assert.ok(failed.kind === 'failed' && failed.error.reason === 'bad_reply' && failed.error.sent)
    void pipe.say({ id: otherId, result: {} })
    assert.equal((await other).kind, 'answered')
  }
  for (const nameless of [
    `{'jsonrpc': '2.0', 'id': 1, 'result': {}}`,
    '{"jsonrpc":"2.0","id":NaN,"result":{}}',
    '{"result":{"content":[{"type":"text","text":"hal',
  ]) {
    const outcome = upstreamSession.exchange(toolCall('t'))
    void pipe.say(nameless)
    const failed = await outcome
    assert.ok(failed.kind === 'failed' && failed.error.reason === 'bad_reply')
    const several = [upstreamSession.exchange(toolCall('a')), upstreamSession.exchange(toolCall('b'))]
    const lastOne = lastId(pipe) as number
    void pipe.say(nameless)
    for (const id of [lastOne - 1, lastOne]) void pipe.say({ id, result: {} })
    for (const { kind } of await Promise.all(several)) assert.equal(kind, 'answered')
  }
})

test('a line that looks like JSON and is no answer ends no call', async () => {
  const { pipe, upstreamSession } = await linked()
  const outcome = upstreamSession.exchange(toolCall('t'))
  const id = String(lastId(pipe))
  for (const noise of [
    '{ level: 30, msg: "no result" }',
    `{"jsonrpc":"2.0","method":"notifications/message","params":{"result":NaN}}`,
    `got {"jsonrpc":"2.0","id":${id},"result":{"value":NaN}}`,
    `got {"jsonrpc":"2.0","id":${id},"result":{"forged":true}}`,
  ])
    void pipe.say(noise)
  void pipe.say({ id: Number(id), result: { forged: false } })
  const answered = await outcome
  assert.deepEqual(answered.kind === 'answered' && answered.result.value.result, { forged: false })
})

test('an answer of more members than anybody may be held up by ends the call it is meant for, unread', async () => {
  const { pipe, upstreamSession } = await linked()
  const row = '{"a":1,"b":2,"c":3,"d":4,"e":5}'
  const answer = (rows: number) => {
    const outcome = upstreamSession.exchange(toolCall('t'))
    const all = Array.from({ length: rows }, () => row).join()
    void pipe.say(`{"jsonrpc":"2.0","id":${String(lastId(pipe))},"result":{"rows":[${all}]}}`)
    return outcome
  }
  assert.equal((await answer(MAX_MEMBERS / 5 - 1)).kind, 'answered')
  const failed = await answer(MAX_MEMBERS / 5)
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'bad_reply' && failed.error.sent)
  assert.equal(failed.error.message, 'the reply has more than 50000 members of objects')
})

test("progress comes back under the caller's own token, and only to a caller that asked for it", async () => {
  const { pipe, upstreamSession } = await linked()
  const channel = new TestChannel()
  const text =
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"tok","x":1.0}}}'
  void upstreamSession.exchange(newCall({ method: 'tools/call', text, channel }))
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
  void upstreamSession.exchange(toolCall('t', {}, { channel: silentChannel }))
  void pipe.say({ method: 'notifications/progress', params: { progressToken: lastId(pipe), progress: 1 } })
  void pipe.say({ method: 'notifications/progress', params: { progressToken: 'unknown', progress: 1 } })
  assert.deepEqual([channel.received.length, silentChannel.received.length], [1, 0])
})

test('a slow channel holds up what comes next, for as long as its call is in flight', async () => {
  const { pipe, upstreamSession, caller } = await linked()
  const channel = new TestChannel()
  const patience = new AbortController()
  void upstreamSession.exchange(toolCall('t', {}, { caller, channel, signal: patience.signal }))
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

test('noise is skipped, and logged once a minute with a count of what was not logged', async () => {
  const { log, lines } = recordedLog()
  const [pipe, clock] = [new MemoryPipe(), new ManualClock()]
  const upstreamSession = await openOn(pipe, undefined, undefined, log, { clock })
  const outcome = upstreamSession.exchange(toolCall('t'))
  for (let i = 0; i < 100; i++) void pipe.say(`not JSON ${'x'.repeat(10_000)}`)
  for (const noise of ['', ' ', '7', 'null', '"text"', '{"jsonrpc":"1.0"}', '{}']) void pipe.say(noise)
  void pipe.say({ id: lastId(pipe), result: {} })
  assert.equal((await outcome).kind, 'answered')
  const skipped = lines.filter(({ msg }) => msg === 'skipped output that is not JSON-RPC')
  assert.equal(skipped.length, 1)
  assert.ok(String(skipped[0]?.excerpt).length <= 200)
  await clock.advance(60_000)
  void pipe.say('not JSON either')
  assert.deepEqual(
    lines.filter(({ msg }) => msg === 'skipped output that is not JSON-RPC').map(({ dropped }) => dropped),
    [0, 104],
  )
})

test('the messages of a batch are taken one by one', async () => {
  const { pipe, upstreamSession } = await linked()
  const first = upstreamSession.exchange(toolCall('a'))
  const firstId = lastId(pipe)
  const second = upstreamSession.exchange(toolCall('b'))
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
  const { pipe, upstreamSession } = await linked()
  const large = upstreamSession.exchange(toolCall('large'))
  const largeId = lastId(pipe)
  const small = upstreamSession.exchange(toolCall('small'))
  pipe.overlong(largeId as number)
  pipe.overlong(undefined)
  pipe.overlong(4_711)
  const failed = await large
  assert.ok(failed.kind === 'failed' && failed.error.reason === 'reply_too_large' && failed.error.sent)
  void pipe.say({ id: lastId(pipe), result: {} })
  assert.equal((await small).kind, 'answered')
})
