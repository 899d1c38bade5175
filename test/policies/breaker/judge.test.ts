import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { answered, bad, failed, good, rpcError, setUp, times } from './rig.ts'

const rejected: Outcome = { kind: 'rejected', error: gatewayError('bulkhead_full', 'full'), by: 'bulkhead' }

const neutral: Record<string, Outcome> = {
  'a rejection': rejected,
  'a cancellation': failed('cancelled'),
  '429': failed('upstream_rate_limited'),
  'the gateway being overloaded': failed('overloaded'),
  'the gateway shutting down': failed('shutting_down'),
  'invalid arguments (-32602)': rpcError(-32602),
  'a method that is not there (-32601)': rpcError(-32601),
  'a deadline of which the server had less than a second': failed('deadline_exceeded'),
}

for (const [name, outcome] of Object.entries(neutral)) {
  test(`${name} counts neither for nor against the server`, async () => {
    const { sendAll, snapshot } = setUp()
    await sendAll([...times(4, bad), ...times(50, outcome)])
    assert.deepEqual(snapshot().availability, { good: 0, bad: 4, ratio: 1 })
    assert.deepEqual([snapshot().state, snapshot().consecutive], ['closed', 4])
  })

  test(`${name} gives a probe's slot back, and leaves the breaker half-open`, async () => {
    const { clock, send, sendAll, state } = setUp()
    await sendAll(times(5, bad))
    await clock.advance(5_000)
    for (let i = 0; i < 3; i++) assert.equal(await send(outcome), outcome)
    assert.equal(state(), 'half_open')
    assert.equal(await send(good), good)
    assert.equal(state(), 'closed')
    assert.equal(clock.pending, 0)
  })
}

const successes: Record<string, Outcome> = {
  'isError: true': answered('tool_error', { result: { isError: true } }),
  'an input_required': answered('unchecked', { result: { resultType: 'input_required' } }),
  'a reply that nobody checked': answered('unchecked'),
}

for (const [name, outcome] of Object.entries(successes)) {
  test(`${name} is a success: it never opens the breaker, and closes a half-open one`, async () => {
    const { clock, send, sendAll, snapshot } = setUp()
    await sendAll([...times(50, outcome)])
    assert.deepEqual(snapshot().availability, { good: 50, bad: 0, ratio: 0 })
    await sendAll(times(50, bad))
    await clock.advance(5_000)
    await send(outcome)
    assert.equal(snapshot().state, 'closed')
  })
}

const failures: Record<string, Outcome> = {
  'an internal error of the server (-32603)': rpcError(-32603),
  'a timeout': failed('attempt_timeout'),
  'a lost connection': failed('upstream_disconnected'),
  'a reply that is none': failed('bad_reply'),
}

for (const [name, outcome] of Object.entries(failures)) {
  test(`${name} counts against the server`, async () => {
    const { sendAll, state } = setUp()
    await sendAll(times(5, outcome))
    assert.equal(state(), 'open')
  })
}

test('a deadline counts against a server that had a second or more', async () => {
  const { clock, hold, snapshot } = setUp()
  for (const ms of [999, 1_000]) {
    const held = hold()
    await clock.advance(ms)
    await held?.finish(failed('deadline_exceeded'))
  }
  assert.equal(snapshot().availability.bad, 1)
})

test('the time in which an agent was asked is not time that the server had', async () => {
  const { clock, hold, snapshot } = setUp()
  const held = hold()
  await clock.advance(5_000)
  held!.call.record.askedMs = 4_500
  await held?.finish(failed('deadline_exceeded'))
  assert.equal(snapshot().availability.bad, 0)
})

test('a wrong reply that was held back on the way is a wrong reply, and no outage', async () => {
  const { sendAll, snapshot } = setUp()
  await sendAll(times(9, failed('incorrect_result')))
  assert.equal(snapshot().availability.bad, 0)
  assert.equal(snapshot().correctness.bad, 9)
})
