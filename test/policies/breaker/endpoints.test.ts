import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import type { MeshEvent, Scope } from '../../../src/mesh/policy.ts'
import { States } from '../../../src/mesh/state.ts'
import { breaker, type Breaker, operator } from '../../../src/policies/breaker.ts'
import { toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { bad, good } from './rig.ts'

/** A server with changing config: policies keep their state, layers are rebuilt. */
function setUp() {
  const clock = new ManualClock()
  const events: MeshEvent[] = []
  const state = new States(clock)
  const context = { ...testPolicyContext(clock, events), state }

  /** Applies a config with these endpoints. Returns a function that calls a replica of the server. */
  function configure(endpoints: readonly string[], settings: object = {}, scope: Partial<Scope> = {}) {
    state.settle((key) => {
      const replica = key.endpoint === undefined ? 0 : endpoints.indexOf(key.endpoint)
      return replica === -1 ? undefined : { ...key, replica }
    })
    const parts = testScope({ replicas: endpoints.length, endpoints, ...scope })
    const layer = breaker.build(breaker.schema.parse({ jitter: 0, ...settings }), context, parts)
    return async (outcome: Outcome, replica: number, times = 1): Promise<string> => {
      let last: Outcome = outcome
      for (let n = 0; n < times; n++)
        last = await layer(() => Promise.resolve(outcome))(toolCall('tool', {}, { replica }))
      return last.kind
    }
  }

  const breakers = () => state.list<Breaker>('breaker')
  const shown = () =>
    breakers().map(([{ endpoint, replica }, one]) => [endpoint, replica, one.snapshot().state])
  /** Gives the orders of the admin API directly. */
  const order = (action: 'open' | 'close' | 'reset', tool = 'tool') =>
    operator.act(
      action,
      { set: undefined, server: 'test', tool },
      breakers().flatMap(([key, one]) => (key.tool === tool ? [one] : [])),
      context,
    )
  return { clock, events, configure, shown, order }
}

test('an endpoint that moves takes its breaker along, which tells of its new place', async () => {
  const { clock, events, configure, shown } = setUp()
  const before = configure(['gone', 'failing', 'well'])
  await before(bad, 1, 5)
  await before(good, 2)
  const after = configure(['failing', 'well'])
  assert.deepEqual(shown(), [
    ['failing', 0, 'open'],
    ['well', 1, 'closed'],
  ])
  assert.equal(await after(good, 0), 'rejected')
  assert.equal(await after(good, 1), 'answered')
  await clock.advance(5_000)
  await after(good, 0)
  assert.deepEqual(
    events.map(({ detail }) => [detail?.replica, detail?.state]),
    [
      [1, 'open'],
      [0, 'half_open'],
      [0, 'closed'],
    ],
  )
})

test('an endpoint that was repaired begins with a closed breaker, and one that was broken again does not', async () => {
  const { configure, shown } = setUp()
  await configure(['broken'])(bad, 0, 5)
  const repaired = configure(['repaired'])
  assert.deepEqual(shown(), [])
  assert.equal(await repaired(good, 0), 'answered')
  assert.equal(await configure(['broken'])(good, 0), 'rejected')
})

test('a breaker that was opened by hand stays open when its settings change, and so do the others of its tool', async () => {
  const { configure, shown, order } = setUp()
  const first = configure(['a', 'b'])
  for (const replica of [0, 1]) await first(good, replica)
  order('open')
  const others = configure(['a', 'b'], { consecutive: 3 })
  for (const replica of [0, 1]) assert.equal(await others(good, replica), 'rejected')
  const mended = configure(['a', 'c'], { consecutive: 4 })
  for (const replica of [0, 1]) assert.equal(await mended(good, replica), 'rejected')
  assert.deepEqual(shown(), [
    ['a', 0, 'open'],
    ['c', 1, 'open'],
  ])
  assert.equal(await configure(['a'], {}, { tool: 'other' })(good, 0), 'answered')
  assert.equal(await configure(['a'], {}, { server: 'other' })(good, 0), 'answered')
  // An order without a set acts in all sets.
  assert.equal(await configure(['a'], {}, { set: 'other' })(good, 0), 'rejected')
})

for (const action of ['close', 'reset'] as const)
  test(`a breaker after the order ${action} decides by itself after a change of settings`, async () => {
    const { configure, order } = setUp()
    await configure(['a'])(good, 0)
    order('open')
    const second = configure(['a'], { consecutive: 3 })
    order(action)
    assert.equal(await second(good, 0), 'answered')
    assert.equal(await configure(['a'], { consecutive: 4 })(good, 0), 'answered')
  })

test('orders that were given while an endpoint was gone hold for it when it is back', async () => {
  const { configure, order, shown } = setUp()
  const both = ['stays', 'comes and goes']
  await configure(both)(good, 0)
  await configure(both)(good, 1)
  configure(['stays'])
  order('open')
  assert.equal(await configure(both)(good, 1), 'rejected')
  configure(['stays'])
  order('close')
  assert.equal(await configure(both)(good, 1), 'answered')
  assert.deepEqual(
    shown().map(([, , state]) => state),
    ['closed', 'closed'],
  )
})
