import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Answer, Call, Message, Outcome } from '../../src/mesh/call.ts'
import type { GatewayError } from '../../src/mesh/errors.ts'
import { hedge } from '../../src/policies/hedge.ts'
import { TestChannel, toolCall } from '../support/caller.ts'
import { testPolicyContext, testScope } from '../support/policy-context.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { answer, failed } from './retry/scripted.ts'
import { hedges } from '../../src/policies/retry/tries.ts'

/** A server whose tries end on the test's command. */
function setUp() {
  const clock = new ManualClock()
  const tries: { call: Call; end: (outcome: Outcome) => void }[] = []
  const layer = hedge.build(hedge.schema.parse({ after: 100 }), testPolicyContext(clock), testScope())
  const service = layer(
    (call) =>
      new Promise((resolve) => {
        tries.push({ call, end: resolve })
        const aborted = () => resolve({ kind: 'failed', error: call.signal.reason as GatewayError })
        call.signal.addEventListener('abort', aborted)
      }),
  )
  const channel = new TestChannel()
  const call = toolCall('tool', {}, { channel })
  const told: Outcome[] = []
  void service(call).then((outcome) => told.push(outcome))
  const sending = (nth: number, text: string, answer?: Answer) => {
    const message: Message = { text, value: { method: text } }
    return tries[nth]?.call.channel.send(message, answer)
  }
  const say = (nth: number, text: string, answer?: Answer) => void sending(nth, text, answer)
  const heard = () => channel.received.map(({ message }) => message.text)
  return { clock, tries, channel, call, told, sending, say, heard }
}

test('messages of the only try pass, with backpressure, and then no second try follows', async () => {
  const { clock, tries, channel, sending, heard, call } = setUp()
  channel.hold()
  const taken = sending(0, 'progress')
  assert.ok(taken instanceof Promise)
  channel.release()
  await taken
  assert.deepEqual(heard(), ['progress'])
  await clock.advance(1_000)
  assert.equal(tries.length, 1)
  assert.equal(hedges.of(call.record), 0)
})

test('a call of which a byte has reached the agent is not sent twice', async () => {
  const { clock, tries, call } = setUp()
  call.record.firstByteAt = 1
  await clock.advance(1_000)
  assert.equal(tries.length, 1)
})

test('a stream that was opened, and in which nothing has come, is no reason to wait longer', async () => {
  const { clock, tries, channel } = setUp()
  tries[0]?.call.channel.open()
  assert.equal(channel.opened, true)
  await clock.advance(100)
  assert.equal(tries.length, 2)
})

test('the agent hears the try that speaks first, and not the other', async () => {
  for (const [first, second] of [
    [0, 1],
    [1, 0],
  ] as const) {
    const { clock, say, heard, tries, channel } = setUp()
    await clock.advance(100)
    say(first, 'one')
    say(second, 'two')
    say(first, 'three')
    tries[second]?.call.channel.pause(10)
    tries[first]?.call.channel.pause(20)
    assert.deepEqual(heard(), ['one', 'three'])
    assert.deepEqual(channel.pauses, [20])
  }
})

test('the silent try may win, and then the other is heard no more', async () => {
  const { clock, say, heard, tries, told } = setUp()
  await clock.advance(100)
  say(0, 'one')
  tries[1]?.end(answer)
  await clock.advance(0)
  say(0, 'two')
  assert.deepEqual(told, [answer])
  assert.equal(tries[0]?.call.signal.aborted, true)
  assert.deepEqual(heard(), ['one'])
})

test('a try that asks the agent while the other is heard is cancelled, unanswered', async () => {
  const { clock, say, heard, tries, told } = setUp()
  await clock.advance(100)
  say(1, 'progress')
  let answered = false
  say(0, 'question', () => {
    answered = true
    return Promise.resolve()
  })
  await clock.advance(0)
  assert.equal(answered, false)
  assert.deepEqual(heard(), ['progress'])
  assert.equal(tries[0]?.call.signal.aborted, true)
  assert.equal(told.length, 0)
  tries[1]?.end(answer)
  await clock.advance(0)
  assert.deepEqual(told, [answer])
})

test('a failure of the heard try is reported, and not the end of the other try', async () => {
  const { clock, say, tries, told } = setUp()
  await clock.advance(100)
  say(1, 'progress')
  say(0, 'question', () => Promise.resolve())
  const failure = failed('upstream_disconnected')
  tries[1]?.end(failure)
  await clock.advance(0)
  assert.deepEqual(told, [failure])
})
