import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StateKey } from '../../src/mesh/policy.ts'
import { States } from '../../src/mesh/state.ts'
import { ManualClock } from '../support/manual-clock.ts'

const key: StateKey = {
  kind: 'breaker',
  set: 'default',
  server: 's',
  tool: 't',
  endpoint: 'a',
  replica: 0,
  config: { ratio: 1 },
}

const KEPT_MS = 15 * 60_000

/** A state that records its notifications. */
class Told {
  closed = 0
  readonly places: number[] = []

  close(): void {
    this.closed++
  }

  moved(replica: number): void {
    this.places.push(replica)
  }
}

function setUp() {
  const clock = new ManualClock()
  return { clock, states: new States(clock) }
}

const shown = (states: States) => states.list('breaker').map(([{ replica }, state]) => [replica, state])

test('the same owner with the same settings finds the same state', () => {
  const { states } = setUp()
  const first = states.get(key, () => ({}))
  assert.equal(
    states.get({ ...key, config: { ratio: 1 } }, () => ({})),
    first,
  )
  for (const other of [{ kind: 'retry' }, { set: 'b' }, { server: 'b' }, { tool: 'b' }, { endpoint: 'b' }])
    assert.notEqual(
      states.get({ ...key, ...other }, () => ({})),
      first,
    )
})

test('the position of an endpoint in the config does not change its state', () => {
  const { states } = setUp()
  const first = states.get(key, () => ({}))
  assert.equal(
    states.get({ ...key, replica: 1 }, () => ({})),
    first,
  )
})

test('changed settings begin with a new state, and the old state is closed', () => {
  const { states } = setUp()
  const first = states.get(key, () => new Told())
  const second = states.get({ ...key, config: { ratio: 2 } }, () => ({}))
  assert.equal(first.closed, 1)
  assert.deepEqual(shown(states), [[0, second]])
})

test('a state follows its endpoint to another place, is notified, and is shown there', () => {
  const { states } = setUp()
  const state = states.get({ ...key, replica: 1 }, () => new Told())
  states.settle((one) => ({ ...one, replica: 0 }))
  states.settle((one) => ({ ...one, replica: 0 }))
  assert.deepEqual(state.places, [0])
  assert.deepEqual(shown(states), [[0, state]])
  // A call from before the change still asks by the old place.
  states.get({ ...key, replica: 1 }, () => new Told())
  assert.deepEqual(shown(states), [[0, state]])
})

test('settling places only existing owners that may have moved, and all owners that are gone', () => {
  const { states } = setUp()
  const [stays, leaves] = [key, { ...key, server: 'other' }]
  for (const one of [stays, leaves]) states.get(one, () => ({}))
  const placed: string[] = []
  const settle = (isThere: boolean, mayDiffer: string) =>
    states.settle(
      (one) => {
        placed.push(one.server)
        return isThere ? one : undefined
      },
      ({ server }) => server === mayDiffer,
    )
  settle(false, 'other')
  assert.equal(shown(states).length, 1)
  settle(true, 'none')
  assert.equal(shown(states).length, 2)
  assert.deepEqual(placed, ['other', 'other'])
})

test('the state of a removed server is hidden, and closed a quarter of an hour later', async () => {
  const { clock, states } = setUp()
  const gone = states.get({ ...key, server: 'gone' }, () => new Told())
  const stays = states.get(key, () => ({}))
  states.settle((one) => (one.server === 'gone' ? undefined : one))
  assert.deepEqual(shown(states), [[0, stays]])
  await clock.advance(KEPT_MS - 1)
  assert.equal(gone.closed, 0)
  await clock.advance(1)
  assert.equal(gone.closed, 1)
  assert.equal(clock.pending, 0)
  const anew = states.get({ ...key, server: 'gone' }, () => new Told())
  assert.notEqual(anew, gone)
})

test('an owner that comes back in time finds its state, with its time to go begun anew', async () => {
  const { clock, states } = setUp()
  const state = states.get(key, () => new Told())
  for (let time = 0; time < 3; time++) {
    states.settle(() => undefined)
    assert.deepEqual(shown(states), [])
    await clock.advance(KEPT_MS - 1)
    states.settle((one) => ({ ...one, replica: 2 }))
    assert.deepEqual(shown(states), [[2, state]])
  }
  assert.equal(
    states.get({ ...key, replica: 2 }, () => new Told()),
    state,
  )
  assert.deepEqual([state.closed, state.places], [0, [2]])
  await clock.advance(KEPT_MS)
  assert.equal(state.closed, 0)
})

test('a running call does not bring back state that has left the config', () => {
  const { states } = setUp()
  const state = states.get(key, () => ({}))
  states.settle(() => undefined)
  assert.equal(
    states.get(key, () => ({})),
    state,
  )
  states.get({ ...key, tool: 'first asked for now' }, () => ({}))
  assert.deepEqual(shown(states), [])
})

test('changed settings of a removed owner begin with a new state, too', () => {
  const { states } = setUp()
  const state = states.get(key, () => new Told())
  states.settle(() => undefined)
  states.settle((one) => one)
  const anew = states.get({ ...key, config: { ratio: 0.7 } }, () => new Told())
  assert.equal(state.closed, 1)
  assert.deepEqual(shown(states), [[0, anew]])
})

test('a generation uses separate settings until in force, and again after its replacement', () => {
  const { states } = setUp()
  const old = states.ofGeneration()
  const before = old.get(key, () => new Told())
  const other = { ...key, tool: 'other' }
  const inForceOf = () => shown(states).map(([, state]) => state)
  const next = states.ofGeneration()
  const changed = { ...key, config: { ratio: 2 } }
  const after = next.get(changed, () => new Told())
  assert.equal(
    next.get(changed, () => new Told()),
    after,
  )
  assert.deepEqual([inForceOf(), before.closed], [[before], 0])
  states.settle((one) => one, undefined, next)
  assert.deepEqual([inForceOf(), before.closed], [[after], 1])
  // An older call asks for a state that it has not needed so far.
  const late = old.get(key, () => new Told())
  assert.notEqual(late, before)
  const alike = next.get(other, () => new Told())
  assert.equal(
    old.get(other, () => new Told()),
    alike,
  )
  assert.deepEqual([inForceOf(), after.closed], [[after, alike], 0])
  old.close()
  assert.deepEqual([late.closed, after.closed, alike.closed], [1, 0, 0])
  next.close()
  assert.deepEqual([after.closed, alike.closed], [0, 0])
})

test('a generation that never comes into force changes nothing', () => {
  const { states } = setUp()
  const old = states.ofGeneration()
  const before = old.get(key, () => new Told())
  const never = states.ofGeneration()
  const own = never.get({ ...key, config: { ratio: 2 } }, () => new Told())
  never.close()
  assert.deepEqual([own.closed, before.closed], [1, 0])
  assert.deepEqual(shown(states), [[0, before]])
  assert.equal(
    old.get(key, () => new Told()),
    before,
  )
})

test('beyond a bound, the state unused for the longest time goes', () => {
  const { states } = setUp()
  const first = states.get({ ...key, tool: 'first' }, () => ({}))
  const second = states.get({ ...key, tool: 'second' }, () => ({}))
  for (let n = 0; n < 49_998; n++) states.get({ ...key, tool: `${n}` }, () => ({}))
  assert.equal(
    states.get({ ...key, tool: 'first' }, () => ({})),
    first,
  )
  states.get({ ...key, tool: 'one more' }, () => ({}))
  assert.equal(states.list('breaker').length, 50_000)
  assert.equal(
    states.get({ ...key, tool: 'first' }, () => ({})),
    first,
  )
  assert.notEqual(
    states.get({ ...key, tool: 'second' }, () => ({})),
    second,
  )
})

test('ten thousand states of removed owners are kept, and the first removed are the first forgotten', () => {
  const { states } = setUp()
  const told = Array.from({ length: 10_001 }, (_, n) =>
    states.get({ ...key, tool: `${n}` }, () => new Told()),
  )
  states.settle(() => undefined)
  assert.deepEqual([told[0]?.closed, told[1]?.closed, told.at(-1)?.closed], [1, 0, 0])
})

test('a restarted set forgets its whole memory, even removed states; other sets keep theirs', () => {
  const { states } = setUp()
  const arm = { ...key, set: 'canary/control' }
  const mine = states.get(arm, () => new Told())
  const gone = states.get({ ...arm, kind: 'retry' }, () => new Told())
  const others = states.get(key, () => new Told())
  states.settle((placed) => (placed.kind === 'retry' ? undefined : placed))
  states.forgetSet('canary/control')
  assert.deepEqual([mine.closed, gone.closed, others.closed], [1, 1, 0])
  states.settle((placed) => placed)
  assert.notEqual(
    states.get(arm, () => new Told()),
    mine,
  )
  assert.notEqual(
    states.get({ ...arm, kind: 'retry' }, () => new Told()),
    gone,
  )
  assert.equal(
    states.get(key, () => new Told()),
    others,
  )
})
