import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Exchange } from '../../../src/downstream/modern/exchange.ts'
import { Parking } from '../../../src/downstream/modern/parking.ts'
import { Quota } from '../../../src/downstream/quotas.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { type GatewayError, isGatewayError } from '../../../src/mesh/errors.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const PARK_MS = 5 * 60_000
const any = () => true

function parking(share = { max: 10, perClient: 10 }) {
  const clock = new ManualClock()
  const quota = new Quota('parked', 'calls that wait', share, () => undefined)
  const answers = new Quota(
    'answers',
    'bytes of answers',
    { max: 30_000, perClient: 20_000 },
    () => undefined,
  )
  return { clock, quota, answers, parking: new Parking(clock, { parked: quota, answers }) }
}

/** As much of a call as is parked. */
const call = (client = 'client') => ({ signal: new Cancellation(), client }) as unknown as Exchange

test('a state takes its call up once', () => {
  const { parking: parked, clock } = parking()
  const exchange = call()
  const state = String(parked.enter(exchange))
  assert.ok(parked.isOurs(state))
  assert.equal(parked.take(state, any), exchange)
  assert.equal(parked.take(state, any), undefined)
  assert.equal(clock.pending, 0)
})

test('a state that was not given out takes nothing up', () => {
  const { parking: parked } = parking()
  const state = String(parked.enter(call()))
  assert.equal(parked.take(`${state}-TAMPERED`, any), undefined)
  assert.equal(parked.size, 1)
})

test('a request that the call does not fit leaves it parked', () => {
  const { parking: parked } = parking()
  const exchange = call()
  const state = String(parked.enter(exchange))
  assert.equal(
    parked.take(state, () => false),
    undefined,
  )
  assert.equal(parked.take(state, any), exchange)
})

test('states of servers, and what is no text, are not ours', () => {
  const { parking: parked } = parking()
  for (const state of ['v1.eyJ', '', 12345, null, undefined]) assert.equal(parked.isOurs(state), false)
})

test('a call whose client does not come back in time is cancelled', async () => {
  const { parking: parked, clock } = parking()
  const exchange = call()
  const state = String(parked.enter(exchange))
  await clock.advance(PARK_MS - 1)
  assert.equal(exchange.signal.aborted, false)
  await clock.advance(1)
  assert.equal((exchange.signal.reason as GatewayError).reason, 'cancelled')
  assert.equal(parked.take(state, any), undefined)
})

test('a call that has ended is kept for its client, and forgotten later', async () => {
  const { parking: parked, clock } = parking()
  const exchange = call()
  const state = String(parked.enter(exchange))
  await clock.advance(PARK_MS - 1)
  assert.equal(parked.keep(state, 100), undefined)
  await clock.advance(PARK_MS - 1)
  assert.equal(parked.size, 1)
  await clock.advance(1)
  assert.equal(parked.size, 0)
  assert.equal(exchange.signal.aborted, false)
})

test('no more than 1000 calls are parked', () => {
  const { parking: parked } = parking()
  for (let i = 0; i < 10; i++) assert.ok(parked.isOurs(parked.enter(call())))
  const error = parked.enter(call())
  assert.ok(isGatewayError(error))
  assert.equal(error.reason, 'overloaded')
})

test('closing cancels all that is parked, and leaves no timer', () => {
  const { parking: parked, clock } = parking()
  const exchange = call()
  parked.enter(exchange)
  parked.closeAll()
  assert.equal((exchange.signal.reason as GatewayError).reason, 'shutting_down')
  assert.equal(clock.pending, 0)
})

test('a client that fills its places leaves those of others, and each way out gives one back', async () => {
  const { parking: parked, quota, clock } = parking({ max: 10, perClient: 2 })
  const first = parked.enter(call('greedy'))
  const second = parked.enter(call('greedy'))
  const error = parked.enter(call('greedy'))
  assert.ok(isGatewayError(error))
  assert.match(error.message, /of this client \(2 of 2; gateway\.limits\.perClient\.parked\)/)
  const other = parked.enter(call('bystander'))
  assert.ok(parked.isOurs(other))
  assert.ok(parked.take(String(first), any))
  assert.equal(quota.of('greedy'), 1)
  parked.keep(String(second), 100)
  await clock.advance(PARK_MS)
  assert.deepEqual([quota.of('greedy'), quota.total], [0, 0])
  parked.enter(call('bystander'))
  parked.closeAll()
  assert.equal(quota.total, 0)
})

test('answers that wait for their clients are bounded in bytes, of one client and of all; each way out gives them back', async () => {
  const { parking: parked, answers, clock } = parking()
  const kept = (client: string, bytes: number) => {
    const state = String(parked.enter(call(client)))
    return { state, error: parked.keep(state, bytes) }
  }
  const first = kept('greedy', 15_000)
  assert.equal(first.error, undefined)
  const { state, error } = kept('greedy', 15_000)
  assert.match(
    error?.message ?? '',
    /the call has run, and its answer of 15000 bytes was not kept .*of this client \(20000 of 20000; gateway\.limits\.perClient\.answers\)/,
  )
  assert.deepEqual([error?.reason, error?.sent], ['overloaded', true])
  assert.equal(kept('greedy', 1_000).error, undefined)
  assert.equal(kept('other', 15_000).error, undefined)
  assert.match(kept('third', 15_000).error?.message ?? '', /too many bytes of answers \(30000 of 30000\)/)
  assert.deepEqual([answers.of('greedy'), answers.total], [15_000, 30_000])
  // Its client may still come for the error.
  assert.ok(parked.take(state, any))
  assert.ok(parked.take(first.state, any))
  assert.deepEqual([answers.of('greedy'), answers.total], [0, 15_000])
  await clock.advance(PARK_MS)
  assert.deepEqual([answers.total, parked.size], [0, 0])
  kept('other', 15_000)
  parked.closeAll()
  assert.equal(answers.total, 0)
})
