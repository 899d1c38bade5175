import assert from 'node:assert/strict'
import { test } from 'node:test'
import { streamFaults } from '../../../src/chaos/faults/stream.ts'
import type { Call, Message, Outcome, Service } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../src/mesh/errors.ts'
import { notificationText, parseJson } from '../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../support/caller.ts'
import { answering, testShot, type TestShot, type TestShotParts } from '../../support/shot.ts'

const cut = streamFaults['sse.cut']
const badFrame = streamFaults['sse.bad_frame']

function log(number: number): Message {
  const text = notificationText('notifications/message', { level: 'info', data: number })
  return { text, value: parseJson(text) as Message['value'] }
}

/** A server that logs so many times, one message every 10 ms, and then answers; it stops when it is told to. */
function logging(shot: TestShot, messages: number, seen: Call[] = []): Service {
  return (call) => {
    seen.push(call)
    call.channel.open()
    const step = async (): Promise<Outcome> => {
      for (let number = 1; number <= messages; number++) {
        await shot.clock.sleep(10, call.signal)
        await call.channel.send(log(number))
      }
      await shot.clock.sleep(10, call.signal)
      return answering({ content: [] })(call)
    }
    return step().catch((error: GatewayError) => ({ kind: 'failed', error }))
  }
}

function setUp(parts: TestShotParts = {}) {
  const shot = testShot(parts)
  const channel = new TestChannel()
  const signal = new Cancellation()
  const call = toolCall('search', {}, { channel, signal })
  const outcomes: Outcome[] = []
  const follow = (outcome: Promise<Outcome>) => void outcome.then((it) => outcomes.push(it))
  return { shot, channel, signal, call, outcomes, follow }
}

const reasonOf = (outcome: Outcome | undefined) =>
  outcome?.kind === 'failed' ? outcome.error.reason : outcome?.kind

for (const side of ['upstream', 'client'] as const) {
  test(`a stream is cut after its first message, and the exchange is cancelled (${side})`, async () => {
    const { shot, channel, call, outcomes, follow } = setUp({ side })
    const seen: Call[] = []
    follow(cut.layer(cut.schema.parse({}), shot)(logging(shot, 3, seen))(call))
    await shot.clock.advance(10)
    assert.equal(channel.received.length, 1)
    assert.equal(reasonOf(outcomes[0]), 'upstream_disconnected')
    assert.deepEqual(outcomes[0]?.wire, side === 'client' ? { end: 'reset' } : undefined)
    assert.equal((seen[0]?.signal.reason as GatewayError).reason, 'cancelled')
    assert.equal(call.signal.aborted, false)
    assert.deepEqual(shot.notes, [{ events: 1 }])
    await shot.clock.advance(100)
    assert.equal(channel.received.length, 1)
    assert.equal(shot.clock.pending, 0)
  })
}

test('an answer that comes before the stream was to be cut is cut instead', async () => {
  const { shot, channel, call, outcomes, follow } = setUp()
  follow(cut.layer(cut.schema.parse({ afterEvents: 5 }), shot)(logging(shot, 2))(call))
  await shot.clock.advance(100)
  assert.equal(channel.received.length, 2)
  assert.deepEqual(shot.disconnects, ['the stream ended without an answer'])
  assert.equal(reasonOf(outcomes[0]), 'upstream_disconnected')
  assert.deepEqual(shot.notes, [{ events: 2 }])
})

test('a stream that is cut after no message at all is opened, and that is all', async () => {
  const { shot, channel, call, outcomes, follow } = setUp()
  follow(cut.layer(cut.schema.parse({ afterEvents: 0 }), shot)(logging(shot, 2))(call))
  await shot.clock.advance(100)
  assert.equal(channel.opened, true)
  assert.equal(channel.received.length, 0)
  assert.equal(reasonOf(outcomes[0]), 'upstream_disconnected')
})

test('a silent stream is cut when its time is over', async () => {
  const { shot, call, outcomes, follow } = setUp()
  const slow: Service = (sent) =>
    shot.clock.sleep(5_000, sent.signal).then(
      () => answering({ content: [] })(sent),
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  follow(cut.layer(cut.schema.parse({ after: '2s' }), shot)(slow)(call))
  await shot.clock.advance(1_999)
  assert.equal(outcomes.length, 0)
  await shot.clock.advance(1)
  assert.equal(reasonOf(outcomes[0]), 'upstream_disconnected')
  assert.equal(shot.clock.pending, 0)
})

test('a cut waits until a slow agent has taken the last message', async () => {
  const { shot, channel, call, outcomes, follow } = setUp()
  channel.hold()
  follow(cut.layer(cut.schema.parse({}), shot)(logging(shot, 1))(call))
  await shot.clock.advance(50)
  assert.equal(outcomes.length, 0)
  channel.release()
  await shot.clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), 'upstream_disconnected')
})

test('once it is released, nothing is cut any more', async () => {
  for (const fault of [cut, badFrame]) {
    const { shot, channel, call, outcomes, follow } = setUp()
    follow(fault.layer(fault.schema.parse({ afterEvents: 2 }), shot)(logging(shot, 3))(call))
    await shot.clock.advance(10)
    shot.release()
    await shot.clock.advance(100)
    assert.equal(channel.received.length, 3)
    assert.equal(outcomes[0]?.kind, 'answered')
    assert.deepEqual(shot.notes, [])
  }
})

test('a call that fails by itself fails as it does, and there is nothing to cut', async () => {
  const { shot, call } = setUp()
  const refused: Outcome = { kind: 'failed', error: gatewayError('upstream_unavailable', 'cannot connect') }
  const outcome = await cut.layer(cut.schema.parse({}), shot)(() => Promise.resolve(refused))(call)
  assert.equal(outcome, refused)
  assert.deepEqual(shot.inapplicable, ['there was no answer to break off'])
})

test('a caller that gives up ends the exchange for its own reason', async () => {
  const { shot, signal, call, outcomes, follow } = setUp()
  follow(cut.layer(cut.schema.parse({ afterEvents: 9, after: '1m' }), shot)(logging(shot, 9))(call))
  await shot.clock.advance(15)
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await shot.clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), 'deadline_exceeded')
  assert.equal(shot.clock.pending, 0)
})

test('the gateway takes a bad event for the bad reply that it is', async () => {
  const { shot, channel, call, outcomes, follow } = setUp()
  follow(badFrame.layer(badFrame.schema.parse({}), shot)(logging(shot, 3))(call))
  await shot.clock.advance(100)
  assert.equal(channel.received.length, 1)
  const [outcome] = outcomes
  assert.equal(reasonOf(outcome), 'bad_reply')
  assert.equal(outcome?.kind === 'failed' && outcome.error.sent, true)
  assert.deepEqual(shot.replies, [])
})

test('an agent gets a stream with an event that is no JSON', async () => {
  const { shot, follow } = setUp({ side: 'client' })
  const call = toolCall('search', {}, { id: 'a-7' })
  follow(badFrame.layer(badFrame.schema.parse({}), shot)(answering({ content: [] }))(call))
  await shot.clock.advance(0)
  const [reply] = shot.replies
  assert.equal(reply?.status, 200)
  assert.equal(reply?.headers['content-type'], 'text/event-stream')
  const data = /^event: message\ndata: (.*)\n\n$/.exec(reply?.body ?? '')?.[1] ?? ''
  assert.match(data, /^\{"jsonrpc":"2\.0","result":/)
  assert.equal(parseJson(data), undefined)
})
