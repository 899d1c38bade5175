import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Exchange } from '../../../src/downstream/modern/exchange.ts'
import { Parking } from '../../../src/downstream/modern/parking.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import type { GatewayError } from '../../../src/mesh/errors.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const PARK_MS = 5 * 60_000
const any = () => true

function parking() {
  const clock = new ManualClock()
  return { clock, parking: new Parking(clock) }
}

/** As much of a call as is parked. */
const call = () => ({ signal: new Cancellation() }) as unknown as Exchange

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
  parked.keep(state)
  await clock.advance(PARK_MS - 1)
  assert.equal(parked.size, 1)
  await clock.advance(1)
  assert.equal(parked.size, 0)
  assert.equal(exchange.signal.aborted, false)
})

test('no more than 1000 calls are parked', () => {
  const { parking: parked } = parking()
  for (let i = 0; i < 1_000; i++) assert.ok(parked.enter(call()))
  assert.equal(parked.enter(call()), undefined)
})

test('closing cancels all that is parked, and leaves no timer', () => {
  const { parking: parked, clock } = parking()
  const exchange = call()
  parked.enter(exchange)
  parked.closeAll()
  assert.equal((exchange.signal.reason as GatewayError).reason, 'shutting_down')
  assert.equal(clock.pending, 0)
})
