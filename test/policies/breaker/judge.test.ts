import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { answered, bad, failed, good, rpcError, setUp, times } from './rig.ts'
import { bulkheadFull } from '../../../src/policies/bulkhead.ts'

const rejected: Outcome = { kind: 'rejected', error: gatewayError(bulkheadFull, 'full'), by: 'bulkhead' }

function withStatus(status: number, outcome: Outcome): Outcome {
  return outcome.kind === 'answered' ? { ...outcome, result: { ...outcome.result, status } } : outcome
}

const neutral: Record<string, Outcome> = {
  'a rejection': rejected,
  'a cancellation': failed('cancelled'),
  '429': failed('upstream_rate_limited'),
  'another refusal by HTTP status': failed('upstream_refused'),
  'refused credentials': failed('upstream_unauthorized'),
  'a forbidden request': failed('upstream_forbidden'),
  'a lost session': failed('session_lost'),
  'an error with HTTP 404': withStatus(404, rpcError(-32000)),
  'an error with HTTP 413': withStatus(413, rpcError(-32603)),
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
  test(`${name} is a success: a success never opens a breaker, and closes a half-open breaker`, async () => {
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
  'an error with HTTP 408': withStatus(408, rpcError(-32000)),
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

test('a result of arguments that break the schema counts neither for nor against the server', async () => {
  const { clock, send, sendAll, snapshot, state } = setUp()
  await sendAll(times(4, bad))
  for (const outcome of [bad, rpcError(-32603), failed('attempt_timeout'), answered('schema_invalid')])
    for (let n = 0; n < 10; n++) await send(outcome, 0, true)
  const { availability, correctness } = snapshot()
  assert.deepEqual([availability.bad, availability.good, correctness.bad], [4, 0, 0])
  await send(failed('upstream_disconnected'), 0, true)
  assert.equal(state(), 'open')
  await clock.advance(5_000)
  await send(rpcError(-32603), 0, true)
  assert.equal(state(), 'half_open')
  await send(good, 0, true)
  assert.equal(state(), 'closed')
})

const impatient = { deadline: { at: 2_000, reserveMs: undefined, askedFor: true } }

test('callers who ask for a short deadline open no breaker, however many and however late they leave', async () => {
  const { clock, hold, snapshot } = setUp()
  for (let n = 0; n < 50; n++) {
    const held = hold(impatient)
    await clock.advance(2_000)
    await held?.finish(failed('deadline_exceeded'))
  }
  const { state, consecutive, availability } = snapshot()
  assert.deepEqual([state, consecutive, availability.bad + availability.good], ['closed', 0, 0])
})

test('calls of impatient callers count where slow calls count, if longer than a call may take', async () => {
  for (const [ms, state] of [
    [2_000, 'closed'],
    [2_001, 'open'],
  ] as const) {
    const rig = setUp({ minimum: 5, slow: { over: 2_000, ratio: 0.5 } })
    for (let n = 0; n < 5; n++) {
      const held = rig.hold(impatient)
      await rig.clock.advance(ms)
      await held?.finish(failed('deadline_exceeded'))
    }
    const { availability, dimension, slow } = rig.snapshot()
    assert.equal(rig.state(), state)
    assert.deepEqual([availability.bad, slow?.good], [0, 0])
    if (state === 'open') assert.equal(dimension, 'slow')
  }
})

test('a probe whose caller did not wait gives its slot back, and fails if already slow', async () => {
  for (const [settings, state] of [
    [{}, 'half_open'],
    [{ slow: { over: '3s' } }, 'half_open'],
    [{ slow: { over: '1s' } }, 'open'],
  ] as const) {
    const { clock, hold, sendAll, snapshot } = setUp(settings)
    await sendAll(times(5, bad))
    await clock.advance(5_000)
    const held = hold(impatient)
    await clock.advance(2_000)
    await held?.finish(failed('deadline_exceeded'))
    assert.equal(snapshot().state, state)
  }
})
