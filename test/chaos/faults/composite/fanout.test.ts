import { test } from 'node:test'
import { fanout } from '../../../../src/chaos/faults/composite.ts'
import { faultSchema } from '../../../../src/chaos/plan/schema.ts'
import type { Call, Outcome, Service } from '../../../../src/mesh/call.ts'
import { Cancellation } from '../../../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../../../src/mesh/errors.ts'
import { notificationText, parseJson, requestText } from '../../../../src/protocol/jsonrpc.ts'
import { TestChannel, toolCall } from '../../../support/caller.ts'
import { answering, testInjection } from '../../../support/injection.ts'

import assert from 'node:assert/strict'

const message = (text: string) => ({ text, value: parseJson(text) as Record<string, unknown> })

/** A server that takes 100 ms, numbers its answers, and logs and asks during each call. */
function setUp(config: object = {}) {
  const injection = testInjection()
  const seen: Call[] = []
  const answered: string[] = []
  const server: Service = (call) => {
    seen.push(call)
    const number = seen.length
    void call.channel.send(
      message(notificationText('notifications/message', { level: 'info', data: number })),
    )
    void call.channel.send(
      message(requestText(`ask-${number}`, 'roots/list')),
      async (text) => void answered.push(text),
    )
    return injection.clock.sleep(100, call.signal).then(
      () => answering({ content: [], number })(call),
      (error: GatewayError): Outcome => ({ kind: 'failed', error }),
    )
  }
  const channel = new TestChannel({ 'roots/list': '{"roots":[]}' })
  const signal = new Cancellation()
  const call = toolCall('read', { path: '/' }, { id: 5, channel, signal })
  const outcomes: Outcome[] = []
  const send = () => {
    const service = fanout.layer(fanout.schema.parse(config), injection)(server)
    void service(call).then((outcome) => outcomes.push(outcome))
  }
  return { injection, seen, answered, channel, signal, call, outcomes, send }
}

const numberIn = (outcome: Outcome | undefined) =>
  outcome?.kind === 'answered' ? (outcome.result.value.result as { number: number }).number : undefined

test('one call becomes three, one after another, and the first is answered', async () => {
  const { injection, seen, send, outcomes } = setUp()
  send()
  await injection.clock.advance(299)
  assert.equal(seen.length, 3)
  assert.equal(outcomes.length, 0)
  await injection.clock.advance(1)
  assert.equal(numberIn(outcomes[0]), 1)
  assert.equal(outcomes[0]?.kind === 'answered' && outcomes[0].result.value.id, 5)
  assert.deepEqual(injection.notes, [{ sent: 3 }])
})

test('each copy says the same under an id of its own', async () => {
  const { injection, seen, send, call } = setUp({ factor: 4 })
  send()
  await injection.clock.advance(400)
  assert.equal(new Set(seen.map(({ id }) => id)).size, 4)
  for (const { id, message } of seen) {
    assert.deepEqual(parseJson(message.text), { ...call.message.value, id })
    assert.deepEqual(message.value, { ...call.message.value, id })
  }
})

test('the agent sees the messages of one call only, and questions in the copies get an error', async () => {
  const { injection, send, channel, answered } = setUp()
  send()
  await injection.clock.advance(300)
  assert.equal(channel.of('notifications/message').length, 1)
  assert.equal(channel.of('roots/list').length, 1)
  const codes = answered.map((text) => (parseJson(text) as { error?: { code: number } }).error?.code)
  assert.deepEqual(codes, [undefined, -32601, -32601])
})

test('a release ends the fan-out with the current answer, and cancels the copy under way', async () => {
  const { injection, seen, send, outcomes, signal } = setUp()
  send()
  await injection.clock.advance(150)
  injection.release()
  await injection.clock.advance(0)
  assert.equal(numberIn(outcomes[0]), 1)
  assert.equal((seen[1]?.signal.reason as GatewayError).reason, 'cancelled')
  assert.equal(signal.aborted, false)
  assert.deepEqual(injection.notes, [{ sent: 2 }])
})

test('a caller that gives up while copies are sent gets its own reason', async () => {
  const { injection, seen, send, outcomes, signal } = setUp()
  send()
  await injection.clock.advance(150)
  signal.abort(gatewayError('deadline_exceeded', 'too late'))
  await injection.clock.advance(1_000)
  assert.equal(outcomes[0]?.kind === 'failed' && outcomes[0].error.reason, 'deadline_exceeded')
  assert.equal(seen.length, 2)
})

test('a plan cannot allow repeated writes', () => {
  const schema = faultSchema({ 'fanout.amplify': fanout })
  const fault = { name: 'more', type: 'fanout.amplify', rate: 1, ttl: '1m' }
  assert.equal(schema.parse(fault).factor, 3)
  const { error } = schema.safeParse({ ...fault, allowWrites: true })
  assert.deepEqual(error?.issues[0]?.path, ['allowWrites'])
  assert.match(error?.issues[0]?.message ?? '', /read-only/)
})
