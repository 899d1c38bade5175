import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answered, bad, good, setUp, times } from './rig.ts'

test('five failures in a row open a breaker before the minimum is reached', async () => {
  const { sendAll, snapshot } = setUp({ minimum: 100 })
  await sendAll(times(4, bad))
  assert.equal(snapshot().state, 'closed')
  await sendAll([bad])
  assert.deepEqual([snapshot().state, snapshot().dimension], ['open', 'consecutive'])
})

test('a success in between begins the row of failures anew', async () => {
  const { sendAll, snapshot } = setUp({ minimum: 100 })
  await sendAll([...times(4, bad), good, ...times(4, bad)])
  assert.deepEqual([snapshot().state, snapshot().consecutive], ['closed', 4])
})

test('failures in a row do not count when that is switched off', async () => {
  const { sendAll, state } = setUp({ consecutive: 0, minimum: 100 })
  await sendAll(times(50, bad))
  assert.equal(state(), 'closed')
})

test('the share of failures counts from the minimum on, and at the ratio itself', async () => {
  const { sendAll, snapshot } = setUp({ consecutive: 0 })
  await sendAll([bad, good, bad, good, bad, good, bad, good, bad])
  assert.equal(snapshot().state, 'closed')
  await sendAll([good])
  assert.deepEqual([snapshot().state, snapshot().why], ['open', 'availability: 5 of 10 calls failed in 30s'])
})

test('a share of failures below the ratio leaves it closed', async () => {
  const { sendAll, state } = setUp({ consecutive: 0 })
  await sendAll([...times(6, good), ...times(5, bad)])
  assert.equal(state(), 'closed')
})

test('calls that are under way do not count towards the minimum', async () => {
  const { hold, sendAll, state } = setUp({ consecutive: 0, minimum: 5 })
  const held = times(5, good).map(() => hold())
  await sendAll(times(4, bad))
  assert.equal(state(), 'closed')
  await held[0]?.finish(good)
  assert.equal(state(), 'open')
})

test('failures that the window has left behind do not count', async () => {
  const { clock, sendAll, state } = setUp({ consecutive: 0 })
  await sendAll(times(9, bad))
  await clock.advance(30_000)
  await sendAll([bad])
  assert.equal(state(), 'closed')
})

test('slow calls open a breaker when configured to count', async () => {
  const { clock, hold, snapshot } = setUp({ slow: { over: '2s' }, minimum: 4 })
  for (const ms of [2_001, 2_000, 3_000, 10]) {
    const held = hold()
    await clock.advance(ms)
    await held?.finish(good)
  }
  assert.deepEqual(
    [snapshot().state, snapshot().why, snapshot().slow],
    ['open', 'slow: 2 of 4 calls took longer than 2s', { good: 2, bad: 2, ratio: 0.5 }],
  )
})

test('a call is not slow because a person took their time to answer the server', async () => {
  const { clock, hold, snapshot } = setUp({ slow: { over: '2s' }, minimum: 1 })
  const held = hold()
  await clock.advance(60_000)
  held!.call.record.askedMs = 59_000
  await held?.finish(good)
  assert.deepEqual([snapshot().state, snapshot().slow?.bad], ['closed', 0])
})

test('a tool that answers fast and wrong is stopped by its correctness window, and recovers by itself', async () => {
  const { clock, send, sendAll, snapshot } = setUp()
  await sendAll([...times(5, answered('correct')), ...times(5, answered('schema_invalid'))])
  assert.deepEqual([snapshot().state, snapshot().dimension], ['open', 'correctness'])
  assert.equal(snapshot().why, 'correctness: 5 of 10 replies were wrong in 30s')
  assert.equal(snapshot().availability.bad, 0)
  await clock.advance(5_000)
  await send(answered('json_invalid'))
  assert.deepEqual([snapshot().state, snapshot().why], ['open', 'a probe got a wrong reply'])
  await clock.advance(10_000)
  await send(answered('correct'))
  assert.deepEqual([snapshot().state, snapshot().correctness.bad], ['closed', 0])
})

test('every reply is a sample of correctness, checked or not, and a failure is no sample', async () => {
  const { sendAll, snapshot } = setUp()
  await sendAll([
    ...times(6, answered('partial_silent')),
    ...[answered('unchecked'), answered('tool_error'), answered('drift'), bad],
  ])
  assert.deepEqual(snapshot().correctness, { good: 3, bad: 6, ratio: 6 / 9 })
  assert.equal(snapshot().state, 'closed')
  await sendAll([answered('partial_declared')])
  assert.deepEqual(snapshot().correctness, { good: 4, bad: 6, ratio: 0.6 })
  assert.equal(snapshot().state, 'open')
})

test('wrong replies neither open a breaker nor fail a probe when configured not to count', async () => {
  const { clock, send, sendAll, state } = setUp({ correctness: false })
  await sendAll(times(50, answered('schema_invalid')))
  assert.equal(state(), 'closed')
  await sendAll(times(50, bad))
  await clock.advance(5_000)
  await send(answered('schema_invalid'))
  assert.equal(state(), 'closed')
})
