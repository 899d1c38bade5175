import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type PendingInputCall, PendingInputStore } from '../../../src/downstream/modern/pending-inputs.ts'
import { PendingInputQuota, Quota } from '../../../src/downstream/limits/quotas.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { type GatewayError, isGatewayError } from '../../../src/mesh/errors.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const PARK_MS = 5 * 60_000
const any = () => true

function pendingInputs(share = { max: 10, perClient: 10 }) {
  const clock = new ManualClock()
  const quota = new Quota('pendingInputs', 'calls that wait', share, () => undefined)
  const answers = new Quota(
    'answers',
    'bytes of answers',
    { max: 30_000, perClient: 20_000 },
    () => undefined,
  )
  const store = new PendingInputStore<PendingInputCall>(clock, {
    pendingInputs: new PendingInputQuota(quota, () => undefined),
    answers,
  })
  return { clock, quota, answers, store }
}

/** The parts of a call a pending input needs. */
const call = (client = 'client', tenant = client): PendingInputCall => ({
  signal: new Cancellation(),
  client,
  tenant,
  session: undefined,
})

test('a state takes its call up once', () => {
  const { store, clock } = pendingInputs()
  const waiting = call()
  const state = String(store.enter(waiting))
  assert.ok(store.isOurs(state))
  assert.equal(store.take(state, any), waiting)
  assert.equal(store.take(state, any), undefined)
  assert.equal(clock.pending, 0)
})

test('a state that was not given out takes nothing up', () => {
  const { store } = pendingInputs()
  const state = String(store.enter(call()))
  assert.equal(store.take(`${state}-TAMPERED`, any), undefined)
  assert.equal(store.size, 1)
})

test('a request that the call does not fit leaves it waiting', () => {
  const { store } = pendingInputs()
  const waiting = call()
  const state = String(store.enter(waiting))
  assert.equal(
    store.take(state, () => false),
    undefined,
  )
  assert.equal(store.take(state, any), waiting)
})

test('states of servers, and states that are no text, are foreign', () => {
  const { store } = pendingInputs()
  for (const state of ['v1.eyJ', '', 12345, null, undefined]) assert.equal(store.isOurs(state), false)
})

test('a call whose client does not come back in time is cancelled', async () => {
  const { store, clock } = pendingInputs()
  const waiting = call()
  const state = String(store.enter(waiting))
  await clock.advance(PARK_MS - 1)
  assert.equal(waiting.signal.aborted, false)
  await clock.advance(1)
  assert.equal((waiting.signal.reason as GatewayError).reason, 'cancelled')
  assert.equal(store.take(state, any), undefined)
})

test('a call that has ended is kept for its client, and forgotten later', async () => {
  const { store, clock } = pendingInputs()
  const waiting = call()
  const state = String(store.enter(waiting))
  await clock.advance(PARK_MS - 1)
  assert.equal(store.keep(state, 100), undefined)
  await clock.advance(PARK_MS - 1)
  assert.equal(store.size, 1)
  await clock.advance(1)
  assert.equal(store.size, 0)
  assert.equal(waiting.signal.aborted, false)
})

test('no more calls wait than all clients together may have', () => {
  const { store } = pendingInputs()
  for (let i = 0; i < 10; i++) assert.ok(store.isOurs(store.enter(call(`client ${i}`))))
  const error = store.enter(call())
  assert.ok(isGatewayError(error))
  assert.equal(error.reason, 'overloaded')
})

test('closing cancels all that waits, and leaves no timer', () => {
  const { store, clock } = pendingInputs()
  const waiting = call()
  store.enter(waiting)
  store.closeAll()
  assert.equal((waiting.signal.reason as GatewayError).reason, 'shutting_down')
  assert.equal(clock.pending, 0)
})

test('a client that fills its places leaves those of others, and each way out gives one back', async () => {
  const { store, quota, clock } = pendingInputs({ max: 10, perClient: 2 })
  const first = store.enter(call('greedy', 'one'))
  const second = store.enter(call('greedy', 'two'))
  const error = store.enter(call('greedy', 'three'))
  assert.ok(isGatewayError(error))
  assert.match(error.message, /of this client \(limit 2, gateway\.limits\.perClient\)/)
  const other = store.enter(call('bystander'))
  assert.ok(store.isOurs(other))
  assert.ok(store.take(String(first), any))
  assert.equal(quota.of('greedy'), 1)
  store.keep(String(second), 100)
  await clock.advance(PARK_MS)
  assert.deepEqual([quota.of('greedy'), quota.total], [0, 0])
  store.enter(call('bystander'))
  store.closeAll()
  assert.equal(quota.total, 0)
})

test('answers that wait for their clients are bounded in bytes, of one client and of all; each way out gives them back', async () => {
  const { store, answers, clock } = pendingInputs()
  const kept = (client: string, bytes: number) => {
    const state = String(store.enter(call(client)))
    return { state, error: store.keep(state, bytes) }
  }
  const first = kept('greedy', 15_000)
  assert.equal(first.error, undefined)
  const { state, error } = kept('greedy', 15_000)
  assert.match(
    error?.message ?? '',
    /the call has run, but its answer of 15000 bytes could not be kept .*of this client \(limit 20000, gateway\.limits\.perClient\)/,
  )
  assert.deepEqual([error?.reason, error?.sent], ['overloaded', true])
  assert.equal(kept('greedy', 1_000).error, undefined)
  assert.equal(kept('other', 15_000).error, undefined)
  assert.match(
    kept('third', 15_000).error?.message ?? '',
    /too many bytes of answers \(limit 30000, gateway\.limits\.memory\)/,
  )
  assert.deepEqual([answers.of('greedy'), answers.total], [15_000, 30_000])
  // The client may still fetch the error.
  assert.ok(store.take(state, any))
  assert.ok(store.take(first.state, any))
  assert.deepEqual([answers.of('greedy'), answers.total], [0, 15_000])
  await clock.advance(PARK_MS)
  assert.deepEqual([answers.total, store.size], [0, 0])
  kept('other', 15_000)
  store.closeAll()
  assert.equal(answers.total, 0)
})
