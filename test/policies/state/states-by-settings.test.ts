import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StatesBySettings } from '../../../src/policies/state/states-by-settings.ts'

const state = (name: string) => ({ snapshot: () => ({ name }) })

test('equal settings share a state, and the least recently used state goes', () => {
  const states = new StatesBySettings<{ snapshot(): object }>(2)
  const first = states.get({ limit: 1 }, () => state('first'))
  states.get({ limit: 2 }, () => state('second'))
  assert.equal(
    states.get({ limit: 1 }, () => state('another')),
    first,
  )
  states.get({ limit: 3 }, () => state('third'))
  assert.deepEqual(states.snapshot(), [{ name: 'first' }, { name: 'third' }])
  states.get({ limit: 2 }, () => state('second again'))
  assert.deepEqual(states.snapshot(), [{ name: 'third' }, { name: 'second again' }])
})
