import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { SharedLink } from '../../src/upstreams/shared-link.ts'
import type { Link } from '../../src/upstreams/upstream.ts'
import { newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { silent } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { MemoryPipe, type Json } from '../support/memory-pipe.ts'

const gatewayHello = {
  protocolVersion: '2025-11-25',
  capabilities: { roots: { listChanged: true } },
  clientInfo: { name: 'gateway', version: '1' },
}

async function shared() {
  const pipe = new MemoryPipe()
  const terms = { server: 'test', hello: gatewayHello, clock: new ManualClock(), log: silent }
  const link = await SharedLink.open(pipe.connect, terms, new AbortController().signal)
  const join = (caller = new TestCaller()) => ({ caller, link: link.attach(caller) })
  return { pipe, link, join }
}

/** Sends a call, and lets the server answer it. */
async function answered(
  pipe: MemoryPipe,
  link: Link,
  call: Call,
  rest: Json = { result: {} },
): Promise<Outcome> {
  const before = pipe.sent(call.method).length
  const outcome = link.exchange(call)
  const request = pipe.sent(call.method)[before]
  if (request !== undefined) void pipe.say({ id: request.id, ...rest })
  return outcome
}

function subscription(verb: 'subscribe' | 'unsubscribe', uri: string): Call {
  return newCall({ method: `resources/${verb}`, params: { uri } })
}

function setLevel(level: string): Call {
  return newCall({ method: 'logging/setLevel', params: { level } })
}

const sampling = { id: 's1', method: 'sampling/createMessage', params: {} }
const logged = (level: string) => ({ method: 'notifications/message', params: { level, data: 'x' } })
const updated = (uri: string) => ({ method: 'notifications/resources/updated', params: { uri } })

test('the process is told of no roots, whatever the gateway says of itself', async () => {
  const { pipe } = await shared()
  const { capabilities, clientInfo } = pipe.sent('initialize')[0]?.params as Json
  assert.deepEqual(capabilities, { sampling: {}, elicitation: { form: {}, url: {} } })
  assert.deepEqual(clientInfo, gatewayHello.clientInfo)
})

test('a request of the server goes to the one caller with calls in flight', async () => {
  const { pipe, join } = await shared()
  const [busy, idle] = [join(), join()]
  const channel = new TestChannel({ 'sampling/createMessage': '{"role":"assistant"}' })
  void busy.link.exchange(toolCall('t', {}, { caller: busy.caller, channel }))
  void idle.link.exchange(newCall({ method: 'tools/list', caller: idle.caller }))
  void pipe.say(sampling)
  assert.equal(channel.received.length, 1)
  assert.deepEqual([busy.caller.received, idle.caller.received], [[], []])
  assert.deepEqual(pipe.answers(), [{ jsonrpc: '2.0', id: 's1', result: { role: 'assistant' } }])
})

test('a request of the server that could be for two callers, or for none, goes to nobody', async () => {
  const { pipe, join } = await shared()
  const seats = [join(), join()]
  const channel = new TestChannel()
  void pipe.say(sampling)
  for (const { link, caller } of seats) void link.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say(sampling)
  assert.deepEqual(channel.received, [])
  const errors = pipe.answers().map(({ error }) => error as { code: number; message: string })
  assert.deepEqual(
    errors.map(({ code }) => code),
    [-32603, -32603],
  )
  assert.match(errors[0]?.message ?? '', /sharing: per_session/)
})

test('a client is not asked for what it cannot do', async () => {
  const { pipe, join } = await shared()
  const { link, caller } = join(new TestCaller({ hello: { capabilities: { sampling: {} } } }))
  const channel = new TestChannel()
  void link.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 'e1', method: 'elicitation/create', params: {} })
  void pipe.say(sampling)
  assert.deepEqual(
    channel.received.map(({ message }) => message.value.id),
    ['s1'],
  )
  assert.equal((pipe.answers()[0]?.error as Json).code, -32601)
})

test('only the caller that was asked can answer', async () => {
  const { pipe, join } = await shared()
  const [asked, other] = [join(), join()]
  void asked.link.exchange(toolCall('t', {}, { caller: asked.caller }))
  void pipe.say(sampling)
  await other.link.post('{"jsonrpc":"2.0","id":"s1","result":{"from":"other"}}')
  await asked.link.post('{"jsonrpc":"2.0","id":"s1","result":{"from":"asked"}}')
  assert.deepEqual(
    pipe.answers().map(({ result }) => result),
    [{ from: 'asked' }],
  )
})

test('logs go through the calls of a sole caller, and otherwise to all who want them', async () => {
  const { pipe, join } = await shared()
  const [quiet, verbose] = [join(), join()]
  await answered(pipe, quiet.link, setLevel('error'))
  await answered(pipe, verbose.link, setLevel('debug'))
  void pipe.say(logged('info'))
  assert.deepEqual(
    [quiet, verbose].map(({ caller }) => caller.received.length),
    [0, 1],
  )
  void pipe.say(logged('critical'))
  assert.deepEqual(
    [quiet, verbose].map(({ caller }) => caller.received.length),
    [1, 2],
  )
  const channel = new TestChannel()
  void quiet.link.exchange(toolCall('t', {}, { caller: quiet.caller, channel }))
  void pipe.say(logged('info'))
  void pipe.say(logged('error'))
  assert.deepEqual(channel.received.length, 1)
  assert.deepEqual(
    [quiet, verbose].map(({ caller }) => caller.received.length),
    [1, 2],
  )
})

test('a caller that never asked for logs gets them all, until another one asks', async () => {
  const { pipe, join } = await shared()
  const [one, other] = [join(), join()]
  void pipe.say(logged('debug'))
  await answered(pipe, other.link, setLevel('debug'))
  void pipe.say(logged('debug'))
  void pipe.say(logged('info'))
  assert.deepEqual(
    [one, other].map(({ caller }) => caller.received.length),
    [2, 3],
  )
})

test('the process gets the most verbose level that anybody asked for', async () => {
  const { pipe, join } = await shared()
  const [one, two, three] = [join(), join(), join()]
  const told = () => pipe.sent('logging/setLevel').map(({ params }) => (params as Json).level)
  await answered(pipe, one.link, setLevel('warning'))
  await answered(pipe, two.link, setLevel('info'))
  await answered(pipe, one.link, setLevel('emergency'))
  await answered(pipe, three.link, setLevel('debug'), { error: { code: -32602, message: 'no such level' } })
  await answered(pipe, one.link, setLevel('no level'), { error: { code: -32602, message: 'no such level' } })
  assert.deepEqual(told(), ['warning', 'info', 'info', 'debug', 'no level'])
  await two.link.close()
  assert.equal(told().at(-1), 'emergency')
})

test('changes of a resource reach those who subscribed to it or to what it is part of', async () => {
  const { pipe, join } = await shared()
  const seats = [join(), join(), join()] as const
  await answered(pipe, seats[0].link, subscription('subscribe', 'file:///a'))
  await answered(pipe, seats[1].link, subscription('subscribe', 'file:///b'))
  await answered(pipe, seats[2].link, subscription('subscribe', 'file:///a'), {
    error: { code: 1, message: 'no' },
  })
  for (const uri of ['file:///a', 'file:///a/part', 'file:///ab', 'file:///b', 'file:///c'])
    void pipe.say(updated(uri))
  const got = seats.map(({ caller }) =>
    caller.received.map(({ message }) => (message.value.params as Json).uri),
  )
  assert.deepEqual(got, [['file:///a', 'file:///a/part'], ['file:///b'], []])
})

test('a subscription ends at the server when its last subscriber ends it or leaves', async () => {
  const { pipe, join } = await shared()
  const [one, two, three] = [join(), join(), join()]
  for (const { link } of [one, two, three]) await answered(pipe, link, subscription('subscribe', 'file:///a'))
  assert.equal(pipe.sent('resources/subscribe').length, 3)
  const text =
    '{"jsonrpc":"2.0","id":98765432109876543210,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}'
  const outcome = await answered(pipe, one.link, newCall({ method: 'resources/unsubscribe', text }))
  assert.ok(outcome.kind === 'answered')
  assert.equal(outcome.result.text, '{"jsonrpc":"2.0","id":98765432109876543210,"result":{}}')
  await two.link.close()
  assert.deepEqual(pipe.sent('resources/unsubscribe'), [])
  await answered(pipe, three.link, subscription('unsubscribe', 'file:///a'))
  assert.equal(pipe.sent('resources/unsubscribe').length, 1)
  await answered(pipe, three.link, subscription('subscribe', 'file:///b'))
  await three.link.close()
  assert.deepEqual(pipe.sent('resources/unsubscribe')[1]?.params, { uri: 'file:///b' })
})

test('what concerns everybody reaches everybody who is there', async () => {
  const { pipe, join } = await shared()
  const [one, two, gone] = [join(), join(), join()]
  await gone.link.close()
  void pipe.say({ method: 'notifications/tools/list_changed' })
  void pipe.say({ method: 'notifications/vendor/news' })
  assert.deepEqual(
    [one, two, gone].map(({ caller }) => caller.received.length),
    [2, 2, 0],
  )
})

test("one client's roots are none of the process's business", async () => {
  const { pipe, join } = await shared()
  const { link } = join()
  const before = pipe.texts.length
  await link.post('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
  await link.post('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
  assert.equal(pipe.texts.length, before)
})

test('a caller that leaves takes its calls along, and nothing of the others', async () => {
  const { pipe, join } = await shared()
  const [leaver, stayer] = [join(), join()]
  const theirs = leaver.link.exchange(toolCall('a', {}, { caller: leaver.caller }))
  void pipe.say(sampling)
  const others = stayer.link.exchange(toolCall('b', {}, { caller: stayer.caller }))
  await leaver.link.close()
  await leaver.link.close()
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
    [leaver.link.ended.aborted, stayer.link.ended.aborted, pipe.isClosed],
    [true, false, false],
  )
  const late = await leaver.link.exchange(toolCall('c', {}, { caller: leaver.caller }))
  assert.equal(late.kind, 'failed')
  await assert.rejects(leaver.link.post('{"jsonrpc":"2.0","method":"x"}'), { reason: 'cancelled' })
})

test('when the process ends, it ends for everybody', async () => {
  const { pipe, link, join } = await shared()
  const seats = [join(), join()]
  const outcomes = seats.map((seat) => seat.link.exchange(toolCall('t', {}, { caller: seat.caller })))
  pipe.end(gatewayError('upstream_disconnected', 'gone'))
  const errors = (await Promise.all(outcomes)).map(
    (o) => o.kind === 'failed' && [o.error.reason, o.error.sent],
  )
  assert.deepEqual(errors, [
    ['upstream_disconnected', true],
    ['upstream_disconnected', true],
  ])
  await setImmediate()
  assert.deepEqual(
    [link, ...seats.map((seat) => seat.link)].map(({ ended }) => ended.aborted),
    [true, true, true],
  )
})
