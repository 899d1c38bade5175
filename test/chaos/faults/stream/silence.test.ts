import assert from 'node:assert/strict'
import { test } from 'node:test'
import { streamFaults } from '../../../../src/chaos/faults/stream.ts'
import type { Message, Outcome, Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText, parseJson } from '../../../../src/protocol/jsonrpc.ts'
import { newCall, TestChannel } from '../../../support/caller.ts'
import { answering, testShot, type TestShot } from '../../../support/shot.ts'

const stall = streamFaults['sse.stall']
const endless = streamFaults['sse.progress_forever']

function progress(number: number): Message {
  const text = notificationText('notifications/progress', { progressToken: 'p', progress: number })
  return { text, value: parseJson(text) as Message['value'] }
}

/** A server that reports progress so many times, every 10 ms, and answers 10 ms later. */
function reporting(shot: TestShot, messages: number): Service {
  return (call) => {
    const step = async (): Promise<Outcome> => {
      for (let number = 1; number <= messages; number++) {
        await shot.clock.sleep(10, call.signal)
        void call.channel.send(progress(number))
      }
      await shot.clock.sleep(10, call.signal)
      return answering({ content: [] })(call)
    }
    return step().catch((error: GatewayError) => ({ kind: 'failed', error }))
  }
}

function setUp(token: string | number | undefined = 'p') {
  const shot = testShot()
  const channel = new TestChannel()
  const signal = new Cancellation()
  const _meta = token === undefined ? {} : { progressToken: token }
  const call = newCall({
    method: 'tools/call',
    params: { name: 'slow', arguments: {}, _meta },
    channel,
    signal,
  })
  const outcomes: Outcome[] = []
  const follow = (outcome: Promise<Outcome>) => void outcome.then((it) => outcomes.push(it))
  const told = () =>
    channel.received.map(({ message }) => (message.value.params as { progress: number }).progress)
  return { shot, channel, signal, call, outcomes, follow, told }
}

const reasonOf = (outcome: Outcome | undefined) =>
  outcome?.kind === 'failed' ? outcome.error.reason : outcome?.kind

test('a stream falls silent after its first message, and goes on in order when the silence is over', async () => {
  const { shot, call, outcomes, follow, told } = setUp()
  follow(stall.layer(stall.schema.parse({ stall: '1s' }), shot)(reporting(shot, 3))(call))
  await shot.clock.advance(1_009)
  assert.deepEqual(told(), [1])
  assert.equal(outcomes.length, 0)
  await shot.clock.advance(1)
  assert.deepEqual(told(), [1, 2, 3])
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.deepEqual(shot.notes, [{ events: 1, stallMs: 1_000 }])
  assert.equal(shot.clock.pending, 0)
})

test('an answer that comes before the messages is what is held back', async () => {
  const { shot, call, outcomes, follow } = setUp()
  follow(stall.layer(stall.schema.parse({}), shot)(answering({ content: [] }))(call))
  await shot.clock.advance(0)
  await shot.clock.advance(29_999)
  assert.equal(outcomes.length, 0)
  await shot.clock.advance(1)
  assert.equal(outcomes[0]?.kind, 'answered')
})

test('what comes after the silence is not held again', async () => {
  const { shot, call, outcomes, follow, told } = setUp()
  follow(stall.layer(stall.schema.parse({ stall: 5 }), shot)(reporting(shot, 3))(call))
  await shot.clock.advance(20)
  assert.deepEqual(told(), [1, 2])
  await shot.clock.advance(20)
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.equal(shot.notes.length, 1)
})

test('a stall that is released lets everything go at once', async () => {
  const { shot, call, outcomes, follow, told } = setUp()
  follow(stall.layer(stall.schema.parse({}), shot)(reporting(shot, 2))(call))
  await shot.clock.advance(100)
  assert.deepEqual(told(), [1])
  shot.release()
  await shot.clock.advance(0)
  assert.deepEqual(told(), [1, 2])
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.equal(shot.clock.pending, 0)
})

test('a caller that gives up in a stall gets no late message, and its own reason', async () => {
  const { shot, signal, call, outcomes, follow, told } = setUp()
  follow(stall.layer(stall.schema.parse({}), shot)(reporting(shot, 2))(call))
  await shot.clock.advance(100)
  signal.abort(gatewayError('attempt_timeout', 'no answer'))
  await shot.clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), 'attempt_timeout')
  assert.deepEqual(told(), [1])
  assert.equal(shot.clock.pending, 0)
})

test('a failure is not stalled', async () => {
  const { shot, call } = setUp()
  const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'nobody there') }
  assert.equal(await stall.layer(stall.schema.parse({}), shot)(() => Promise.resolve(failed))(call), failed)
  assert.equal(shot.inapplicable.length, 1)
})

test('progress is reported for ever, growing, in place of what the server reports and answers', async () => {
  const { shot, signal, call, channel, outcomes, follow, told } = setUp('p')
  follow(endless.layer(endless.schema.parse({}), shot)(reporting(shot, 3))(call))
  await shot.clock.advance(5_000)
  assert.deepEqual(told(), [1, 2, 3, 4, 5])
  assert.equal(outcomes.length, 0)
  const [first] = channel.of('notifications/progress')
  assert.deepEqual(parseJson(first?.text ?? ''), first?.value)
  assert.deepEqual(first?.value.params, { progressToken: 'p', progress: 1 })
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await shot.clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), 'deadline_exceeded')
  assert.deepEqual(shot.notes, [{ reports: 5 }])
  await shot.clock.advance(5_000)
  assert.equal(told().length, 5)
  assert.equal(shot.clock.pending, 0)
})

test('progress ends, and the answer comes, when the fault is released', async () => {
  const { shot, call, outcomes, follow, told } = setUp(0)
  follow(endless.layer(endless.schema.parse({ every: '200ms' }), shot)(reporting(shot, 0))(call))
  await shot.clock.advance(500)
  shot.release()
  await shot.clock.advance(0)
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.deepEqual(told(), [1, 2])
  assert.equal(shot.clock.pending, 0)
})

test('a call without a progress token cannot be told of progress', async () => {
  const { shot } = setUp()
  const call = newCall({ method: 'tools/call', params: { name: 'slow' } })
  const outcome = await endless.layer(endless.schema.parse({}), shot)(answering({ content: [] }))(call)
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(shot.inapplicable, ['the call asks for no progress'])
})

test('a call that fails by itself ends its progress', async () => {
  const { shot, call } = setUp()
  const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_disconnected', 'gone') }
  assert.equal(
    await endless.layer(endless.schema.parse({}), shot)(() => Promise.resolve(failed))(call),
    failed,
  )
  await shot.clock.advance(0)
  assert.equal(shot.clock.pending, 0)
})
