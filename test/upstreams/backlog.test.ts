import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import type { Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { lastId, linked } from '../support/linked.ts'
import type { MemoryPipe } from '../support/memory-pipe.ts'
import { shared } from '../support/shared.ts'
import { until } from '../support/until.ts'

const MIB = 1024 ** 2

/** Starts a call on a shared process whose caller does not read. */
async function stuck({ signal = new AbortController().signal } = {}) {
  const { pipe, join } = await shared()
  const [slow, other] = [join(), join()]
  const channel = new TestChannel()
  const ended: { outcome: Outcome | undefined } = { outcome: undefined }
  const call = toolCall('slow', {}, { id: 'slow', caller: slow.caller, channel, signal })
  const text = call.message.text.replace('"arguments"', '"_meta":{"progressToken":"p"},"arguments"')
  const message = { text, value: JSON.parse(text) as typeof call.message.value }
  void slow.upstreamSession.exchange({ ...call, message }).then((outcome) => (ended.outcome = outcome))
  const id = lastId(pipe)
  channel.hold()
  return { pipe, slow, other, channel, id, ended }
}

const progress = (pipe: MemoryPipe, id: unknown, step: number, more: object = {}) =>
  pipe.say({
    method: 'notifications/progress',
    params: { progressToken: id, progress: step, ...more },
  })

const steps = (channel: TestChannel) =>
  channel.of('notifications/progress').map(({ value }) => (value.params as { progress: number }).progress)

test('a caller that does not read holds up nobody else of a shared process', async () => {
  const { pipe, other, id, ended } = await stuck()
  for (let step = 1; step <= 100; step++) assert.equal(progress(pipe, id, step), undefined)
  const quick = other.upstreamSession.exchange(toolCall('quick', {}, { caller: other.caller }))
  assert.equal(pipe.say({ id: lastId(pipe), result: {} }), undefined)
  assert.equal((await quick).kind, 'answered')
  assert.deepEqual(ended, { outcome: undefined })
})

test('waiting messages come in order once the caller reads on, and the answer comes last', async () => {
  const { pipe, channel, id, ended } = await stuck()
  for (let step = 1; step <= 50; step++) void progress(pipe, id, step)
  void pipe.say({ id, result: { done: true } })
  await setImmediate()
  assert.deepEqual(steps(channel), [1])
  channel.release()
  await setImmediate()
  assert.deepEqual(
    steps(channel),
    Array.from({ length: 50 }, (_, index) => index + 1),
  )
  assert.ok(ended.outcome?.kind === 'answered')
})

for (const [what, count, bytes] of [
  ['messages', 1_002, 1],
  ['bytes', 20, MIB / 16],
] as const) {
  test(`a caller for whom too many ${what} wait is cut, and the server is told`, async () => {
    const { pipe, id, ended, other } = await stuck()
    const message = 'x'.repeat(bytes)
    for (let step = 1; step <= count; step++) void progress(pipe, id, step, { message })
    await until('the caller is cut', () => ended.outcome !== undefined)
    assert.ok(ended.outcome?.kind === 'failed')
    assert.deepEqual([ended.outcome.error.reason, ended.outcome.error.sent], ['overloaded', true])
    assert.match(ended.outcome.error.message, /reads too slowly/)
    assert.deepEqual(
      pipe.sent('notifications/cancelled').map(({ params }) => (params as { requestId: unknown }).requestId),
      [id],
    )
    assert.equal(other.upstreamSession.ended.aborted, false)
  })
}

test('a question that waits for a caller that is cut is answered with an error', async () => {
  const { pipe, id } = await stuck()
  void progress(pipe, id, 1)
  void pipe.say({ id: 'q', method: 'sampling/createMessage', params: {} })
  for (let step = 2; step <= 1_002; step++) void progress(pipe, id, step)
  await setImmediate()
  const [answer] = pipe.answers()
  assert.equal(answer?.id, 'q')
  assert.match(JSON.stringify(answer), /the client does not read/)
})

test('a call that is given up while its answer waits ends at once, and its server is not told', async () => {
  const patience = new AbortController()
  const { pipe, channel, id, ended } = await stuck({ signal: patience.signal })
  for (let step = 1; step <= 3; step++) void progress(pipe, id, step)
  void pipe.say({ id, result: {} })
  patience.abort(gatewayError('deadline_exceeded', 'too late'))
  await setImmediate()
  assert.ok(ended.outcome?.kind === 'failed' && ended.outcome.error.reason === 'deadline_exceeded')
  assert.deepEqual(pipe.sent('notifications/cancelled'), [])
  channel.release()
  await setImmediate()
  assert.deepEqual(steps(channel), [1])
})

test('a question that comes while an answer waits is no question of that call', async () => {
  const { pipe, slow, other, id } = await stuck()
  for (let step = 1; step <= 3; step++) void progress(pipe, id, step)
  void pipe.say({ id, result: {} })
  const channel = new TestChannel()
  void other.upstreamSession.exchange(toolCall('asks', {}, { caller: other.caller, channel }))
  void pipe.say({ id: 'q', method: 'sampling/createMessage', params: {} })
  assert.equal(channel.of('sampling/createMessage').length, 1)
  assert.equal(slow.caller.received.length, 0)
})

test('a conversation that is held for one caller still waits for it', async () => {
  const { pipe, upstreamSession, caller } = await linked()
  const channel = new TestChannel()
  channel.hold()
  void upstreamSession.exchange(toolCall('slow', {}, { caller, channel }))
  const log = { method: 'notifications/message', params: { level: 'info', data: 'x' } }
  const wait = pipe.say(log)
  assert.ok(wait instanceof Promise)
  channel.release()
  await wait
})

test('a conversation held for a caller of several clients does not wait for it', async () => {
  const caller = new TestCaller({ era: 'modern' })
  const { pipe, upstreamSession } = await linked({ caller })
  const channel = new TestChannel()
  channel.hold()
  void upstreamSession.exchange(toolCall('slow', {}, { caller, channel }))
  const log = { method: 'notifications/message', params: { level: 'info', data: 'x' } }
  assert.equal(pipe.say(log), undefined)
  assert.equal(pipe.say(log), undefined)
})
