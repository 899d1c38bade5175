import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Reason } from '../../../src/mesh/errors.ts'
import { failed, good, setUp } from './rig.ts'

/** A breaker that has just opened. `back` sets the server's recovery time to now. */
async function opened(reason: Reason) {
  let backAt = -Infinity
  const rig = setUp({}, { backAt: () => backAt })
  const fail = async () => {
    for (let n = 0; n < 5; n++) await rig.send(failed(reason))
  }
  await fail()
  return { ...rig, fail, back: () => (backAt = rig.clock.now()) }
}

for (const reason of ['upstream_unavailable', 'upstream_disconnected'] as const)
  test(`a breaker that opened for ${reason} closes as soon as the server can be reached again`, async () => {
    const { clock, send, back } = await opened(reason)
    await clock.advance(100)
    assert.equal((await send(good)).kind, 'rejected')
    back()
    assert.equal((await send(good)).kind, 'answered')
    assert.equal((await send(good)).kind, 'answered')
  })

test('a server that was reachable before the breaker opened has not come back', async () => {
  let now = -Infinity
  const rig = setUp({}, { backAt: () => now })
  now = rig.clock.now()
  await rig.clock.advance(10)
  for (let n = 0; n < 5; n++) await rig.send(failed('upstream_unavailable'))
  assert.equal((await rig.send(good)).kind, 'rejected')
})

test('a server that failed in other ways is tried by a probe', async () => {
  const { clock, send, hold, back } = await opened('upstream_status')
  await clock.advance(100)
  back()
  const probe = hold()
  assert.notEqual(probe, undefined)
  assert.equal((await send(good)).kind, 'rejected', 'all probes are under way')
  await probe?.finish(good)
  assert.equal((await send(good)).kind, 'answered')
})

test('a reachable server that fails every call is left alone after three openings', async () => {
  const { clock, send, back, fail } = await opened('upstream_disconnected')
  for (let time = 0; time < 3; time++) {
    await clock.advance(10)
    back()
    await fail()
  }
  await clock.advance(10)
  back()
  assert.equal((await send(good)).kind, 'rejected')
  await clock.advance(60_000)
  assert.equal((await send(good)).kind, 'answered')
})

test('a breaker that is held open stays so, whoever comes back', async () => {
  const { clock, send, back, breakerOf } = await opened('upstream_unavailable')
  breakerOf().force('open')
  await clock.advance(10)
  back()
  assert.equal((await send(good)).kind, 'rejected')
})
