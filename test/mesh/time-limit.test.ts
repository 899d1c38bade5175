import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pauseDeadline } from '../../src/mesh/pause-deadline.ts'
import type { Call, Outcome, Service } from '../../src/mesh/call.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { TimeLimit } from '../../src/mesh/time-limit.ts'
import { toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'

function setUp(ms = 1_000) {
  const clock = new ManualClock()
  const limit = new TimeLimit(clock, 1_000)
  const hung: Service = (call) =>
    clock.sleep(1e9, call.signal).then(
      () => assert.fail(),
      (error: GatewayError): Outcome => ({ kind: 'failed', error }),
    )
  const outcomes: Outcome[] = []
  const call: Call = toolCall('asks')
  const error = () => gatewayError('attempt_timeout', 'too long')
  void limit.run(call, hung, ms, error).then((outcome) => outcomes.push(outcome))
  const ask = () => pauseDeadline(call.record, clock, () => Promise.resolve())
  return { clock, outcomes, ask }
}

for (const ms of [1_000, 700]) {
  test(`a call ends after ${ms} ms, whether that is the usual limit or one of its own`, async () => {
    const { clock, outcomes } = setUp(ms)
    await clock.advance(ms - 1)
    assert.equal(outcomes.length, 0)
    await clock.advance(1)
    assert.equal(outcomes.length, 1)
    assert.equal(clock.pending, 0)
  })
}

test('while the agent is being asked, the time stands still', async () => {
  const { clock, outcomes, ask } = setUp()
  await clock.advance(400)
  const { answer } = ask()
  await clock.advance(5_000)
  await answer('{}')
  await clock.advance(599)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(outcomes.length, 1)
})

test('when a server takes its question back, the time goes on', async () => {
  const { clock, outcomes, ask } = setUp()
  const { withdrawn } = ask()
  await clock.advance(5_000)
  withdrawn()
  await clock.advance(999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(outcomes.length, 1)
})

test('questions that overlap stop the clock once, and an answer that comes twice counts once', async () => {
  const { clock, outcomes, ask } = setUp()
  const first = ask().answer
  const second = ask().answer
  await clock.advance(300)
  await first('{}')
  await first('{}')
  await clock.advance(300)
  await second('{}')
  await clock.advance(999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(outcomes.length, 1)
})

test('a question that nobody ever answers holds the call for ten minutes at most', async () => {
  const { clock, outcomes, ask } = setUp()
  ask()
  await clock.advance(600_999)
  assert.equal(outcomes.length, 0)
  await clock.advance(1)
  assert.equal(outcomes.length, 1)
})
