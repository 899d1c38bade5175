import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StateKey } from '../../src/mesh/policy.ts'
import { States } from '../../src/mesh/state.ts'

const key: StateKey = {
  kind: 'breaker',
  set: 'default',
  server: 's',
  tool: 't',
  replica: 0,
  config: { ratio: 1 },
}

test('the same owner with the same settings finds the same state', () => {
  const states = new States()
  const first = states.get(key, () => ({}))
  assert.equal(
    states.get({ ...key, config: { ratio: 1 } }, () => ({})),
    first,
  )
  for (const other of [{ kind: 'retry' }, { set: 'b' }, { server: 'b' }, { tool: 'b' }, { replica: 1 }])
    assert.notEqual(
      states.get({ ...key, ...other }, () => ({})),
      first,
    )
})

test('other settings begin anew, and the state before them is closed', () => {
  const states = new States()
  let closed = 0
  states.get(key, () => ({ close: () => closed++ }))
  const second = states.get({ ...key, config: { ratio: 2 } }, () => ({}))
  assert.equal(closed, 1)
  assert.deepEqual(
    states.list('breaker').map(([, state]) => state),
    [second],
  )
})

test('what belongs to a server that is gone is forgotten and closed', () => {
  const states = new States()
  let closed = 0
  states.get({ ...key, server: 'gone' }, () => ({ close: () => closed++ }))
  const stays = states.get(key, () => ({}))
  states.prune(({ server }) => server !== 'gone')
  assert.equal(closed, 1)
  assert.deepEqual(states.list('breaker'), [[key, stays]])
})

test('there is a bound, past which the state that nobody asked for the longest goes', () => {
  const states = new States()
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
