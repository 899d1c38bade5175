import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Signal } from '../../src/mesh/cancel.ts'
import { gatewayError, type GatewayError } from '../../src/mesh/errors.ts'
import { SharedAttempts } from '../../src/upstreams/shared-attempts.ts'
import { ManualClock } from '../support/manual-clock.ts'

interface Attempt {
  readonly end: Signal
  succeed(value: string): void
  fail(error: GatewayError): void
}

/** A task whose attempts the test ends. */
function setUp() {
  const clock = new ManualClock()
  const begun: Attempt[] = []
  const attempts = new SharedAttempts(
    clock,
    (end) =>
      new Promise<string>((resolve, reject) => {
        begun.push({ end, succeed: resolve, fail: reject })
        end.addEventListener('abort', () => reject(end.reason))
      }),
  )
  return { clock, begun, attempts }
}

const failure = gatewayError('upstream_refused', 'no')

test('all who come at once share one attempt', async () => {
  const { begun, attempts } = setUp()
  const joined = [attempts.join(), attempts.join(), attempts.join()]
  assert.equal(begun.length, 1)
  begun[0]?.succeed('done')
  assert.deepEqual(await Promise.all(joined), ['done', 'done', 'done'])
  void attempts.join()
  assert.equal(begun.length, 2)
})

test('another attempt begins beside a slow one, and any success counts for all', async () => {
  const { clock, begun, attempts } = setUp()
  const first = attempts.join()
  await clock.advance(999)
  const second = attempts.join()
  assert.equal(begun.length, 1)
  await clock.advance(1)
  assert.equal(begun.length, 2)
  begun[1]?.succeed('done')
  assert.deepEqual(await Promise.all([first, second]), ['done', 'done'])
  assert.equal(begun[0]?.end.aborted, true)
  assert.equal(clock.pending, 0)
})

test('infinite patience makes a single attempt', async () => {
  const clock = new ManualClock()
  let begun = 0
  const attempts = new SharedAttempts(clock, () => new Promise(() => begun++), Infinity)
  void attempts.join()
  await clock.advance(100_000)
  void attempts.join()
  assert.equal(begun, 1)
})

test('the task fails when the last attempt has failed', async () => {
  const { clock, begun, attempts } = setUp()
  const joined = attempts.join()
  await clock.advance(1_000)
  const again = attempts.join()
  begun[1]?.fail(gatewayError('attempt_timeout', 'too long'))
  begun[0]?.fail(failure)
  await assert.rejects(joined, failure)
  await assert.rejects(again, failure)
  assert.equal(clock.pending, 0)
})

test('the failure of the oldest attempt ends the wait of callers from before it began', async () => {
  const { clock, begun, attempts } = setUp()
  const joined = attempts.join()
  await clock.advance(1_000)
  const later = attempts.join()
  begun[0]?.fail(failure)
  await assert.rejects(joined, failure)
  assert.equal(begun[1]?.end.aborted, false)
  begun[1]?.succeed('done')
  assert.equal(await later, 'done')
})

test('an attempt that nobody waits for any more is given up', async () => {
  const { clock, begun, attempts } = setUp()
  const joined = attempts.join()
  await clock.advance(1_000)
  begun[0]?.fail(failure)
  await assert.rejects(joined, failure)
  assert.equal(begun[1]?.end.aborted, true)
  assert.equal(attempts.underWay, false)
})

test('there are three attempts at a time at most, and the oldest keeps all of its time', async () => {
  const { clock, begun, attempts } = setUp()
  const joined = [attempts.join()]
  await clock.advance(60_000)
  assert.equal(begun.length, 3, 'no new caller has come')
  joined.push(attempts.join(), attempts.join())
  await clock.advance(0)
  assert.deepEqual(
    begun.map(({ end }) => end.aborted),
    [false, true, false, false],
  )
  begun[0]?.succeed('done')
  assert.deepEqual(await Promise.all(joined), ['done', 'done', 'done'])
  assert.deepEqual(
    begun.map(({ end }) => end.aborted),
    [false, true, true, true],
  )
})

test('giving up the task ends all attempts', async () => {
  const { clock, begun, attempts } = setUp()
  const joined = assert.rejects(attempts.join(), failure)
  await clock.advance(1_000)
  const again = assert.rejects(attempts.join(), failure)
  attempts.abort(failure)
  await Promise.all([joined, again])
  assert.deepEqual(
    begun.map(({ end }) => end.aborted),
    [true, true],
  )
})
