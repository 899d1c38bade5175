import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../src/mesh/call.ts'
import { newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import type { Json } from '../support/memory-pipe.ts'
import { answered, shared } from '../support/shared.ts'

function subscribe(uri: string): Call {
  return newCall({ method: 'resources/subscribe', params: { uri } })
}

function setLevel(level: string): Call {
  return newCall({ method: 'logging/setLevel', params: { level } })
}

const sampling = { id: 's1', method: 'sampling/createMessage', params: {} }
const logged = (level: string) => ({ method: 'notifications/message', params: { level, data: 'x' } })
const updated = (uri: string) => ({ method: 'notifications/resources/updated', params: { uri } })

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

test("one client's roots are not told to a process that others use as well", async () => {
  const { pipe, join } = await shared()
  const { link, caller } = join()
  const channel = new TestChannel()
  void link.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 'r1', method: 'roots/list' })
  assert.deepEqual([channel.received, caller.received], [[], []])
  const { code, message } = pipe.answers()[0]?.error as { code: number; message: string }
  assert.equal(code, -32601)
  assert.match(message, /sharing: per_session/)
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

test('changes of a resource reach those who subscribed to it or to what it is part of', async () => {
  const { pipe, join } = await shared()
  const seats = [join(), join(), join()] as const
  await answered(pipe, seats[0].link, subscribe('file:///a'))
  await answered(pipe, seats[1].link, subscribe('file:///b'))
  await answered(pipe, seats[2].link, subscribe('file:///a'), {
    error: { code: 1, message: 'no' },
  })
  for (const uri of ['file:///a', 'file:///a/part', 'file:///ab', 'file:///b', 'file:///c'])
    void pipe.say(updated(uri))
  const got = seats.map(({ caller }) =>
    caller.received.map(({ message }) => (message.value.params as Json).uri),
  )
  assert.deepEqual(got, [['file:///a', 'file:///a/part'], ['file:///b'], []])
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
