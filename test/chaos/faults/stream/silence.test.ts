import assert from 'node:assert/strict'
import { test } from 'node:test'
import { streamFaults } from '../../../../src/chaos/faults/stream.ts'
import type { Message, Outcome, Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText, parseJson } from '../../../../src/protocol/jsonrpc.ts'
import { newCall, TestChannel } from '../../../support/caller.ts'
import { answering, testInjection, type TestInjection } from '../../../support/injection.ts'

const endless = streamFaults['sse.progress_forever']

function progress(number: number): Message {
  const text = notificationText('notifications/progress', { progressToken: 'p', progress: number })
  return { text, value: parseJson(text) as Message['value'] }
}

/** A server that reports progress every 10 ms, `messages` times, and answers 10 ms later. */
function reporting(injection: TestInjection, messages: number): Service {
  return (call) => {
    const step = async (): Promise<Outcome> => {
      for (let number = 1; number <= messages; number++) {
        await injection.clock.sleep(10, call.signal)
        void call.channel.send(progress(number))
      }
      await injection.clock.sleep(10, call.signal)
      return answering({ content: [] })(call)
    }
    return step().catch((error: GatewayError) => ({ kind: 'failed', error }))
  }
}

function setUp(token: string | number | undefined = 'p') {
  const injection = testInjection()
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
  return { injection, channel, signal, call, outcomes, follow, told }
}

const reasonOf = (outcome: Outcome | undefined) =>
  outcome?.kind === 'failed' ? outcome.error.reason : outcome?.kind

test('progress is reported for ever, growing, in place of what the server reports and answers', async () => {
  const { injection, signal, call, channel, outcomes, follow, told } = setUp('p')
  follow(endless.layer(endless.schema.parse({}), injection)(reporting(injection, 3))(call))
  await injection.clock.advance(5_000)
  assert.deepEqual(told(), [1, 2, 3, 4, 5])
  assert.equal(outcomes.length, 0)
  const [first] = channel.of('notifications/progress')
  assert.deepEqual(parseJson(first?.text ?? ''), first?.value)
  assert.deepEqual(first?.value.params, { progressToken: 'p', progress: 1 })
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await injection.clock.advance(0)
  assert.equal(reasonOf(outcomes[0]), 'deadline_exceeded')
  assert.deepEqual(injection.notes, [{ reports: 5 }])
  await injection.clock.advance(5_000)
  assert.equal(told().length, 5)
  assert.equal(injection.clock.pending, 0)
})

test('progress ends, and the answer comes, when the fault is released', async () => {
  const { injection, call, outcomes, follow, told } = setUp(0)
  follow(endless.layer(endless.schema.parse({ every: '200ms' }), injection)(reporting(injection, 0))(call))
  await injection.clock.advance(500)
  injection.release()
  await injection.clock.advance(0)
  assert.equal(outcomes[0]?.kind, 'answered')
  assert.deepEqual(told(), [1, 2])
  assert.equal(injection.clock.pending, 0)
})

test('a call without a progress token cannot be told of progress', async () => {
  const { injection } = setUp()
  const call = newCall({ method: 'tools/call', params: { name: 'slow' } })
  const outcome = await endless.layer(endless.schema.parse({}), injection)(answering({ content: [] }))(call)
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(injection.inapplicable, ['the call asks for no progress'])
})

test('a call that fails by itself ends its progress', async () => {
  const { injection, call } = setUp()
  const failed: Outcome = { kind: 'failed', error: gatewayError('upstream_disconnected', 'gone') }
  assert.equal(
    await endless.layer(endless.schema.parse({}), injection)(() => Promise.resolve(failed))(call),
    failed,
  )
  await injection.clock.advance(0)
  assert.equal(injection.clock.pending, 0)
})
