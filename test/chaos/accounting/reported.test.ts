import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Caller } from '../../../src/mesh/call.ts'
import { TestCaller, toolCall } from '../../support/caller.ts'
import { fault, rig } from '../rig.ts'

const INTENT = 'dev.breakwater/intent'
const OUTCOME = 'dev.breakwater/outcome'

const callerOf = (id: string): Caller => Object.assign(new TestCaller(), { id })
const me = callerOf('one-0001-session')

/** A mesh whose fault has hit the call `first`, and a function to call again with more `_meta`. */
async function afterOne(meta: Record<string, unknown> = {}) {
  const set = rig()
  set.arm([fault('a', 'test.spoil', { maxInjections: 1 })])
  const call = (id: string | number, entries: Record<string, unknown>, caller = me) => {
    const params = { name: 't', arguments: {}, _meta: entries }
    return set.send(
      toolCall('t', {}, { id, caller, text: JSON.stringify({ id, method: 'tools/call', params }) }),
    )
  }
  await call(7, meta)
  const known = () => {
    const { safe, silent, unknown } = set.tally('a')
    return { safe, silent, unknown }
  }
  return { call, known, set }
}

test('an agent reports on a later call how it used an earlier reply', async () => {
  for (const outcome of ['safe', 'silent', 'unknown'] as const) {
    const { call, known } = await afterOne()
    await call(8, { [OUTCOME]: { call: 7, outcome } })
    assert.deepEqual(known(), { safe: 0, silent: 0, unknown: 0, [outcome]: 1 })
  }
})

test('an agent report can name the intent of the earlier call', async () => {
  const { call, known } = await afterOne({ [INTENT]: 'task-1' })
  await call(8, { [OUTCOME]: { call: 'task-1', outcome: 'safe' } })
  assert.equal(known().safe, 1)
})

test('reports about calls of others, about calls without a fault, and with invalid words change nothing', async () => {
  const { call, known } = await afterOne()
  await call(8, { [OUTCOME]: { call: 7, outcome: 'safe' } }, callerOf('two-0002-session'))
  for (const said of [
    'safe',
    null,
    { call: 7 },
    { call: 7, outcome: 'fine' },
    { call: [7], outcome: 'safe' },
  ])
    await call(9, { [OUTCOME]: said })
  await call(10, { [OUTCOME]: { call: 9, outcome: 'safe' } })
  assert.deepEqual(known(), { safe: 0, silent: 0, unknown: 0 })
})

test('reports are ignored while no fault is armed', async () => {
  const { call, known, set } = await afterOne()
  set.controller.disarm('me', 'enough')
  await call(8, { [OUTCOME]: { call: 7, outcome: 'safe' } })
  assert.equal(known().safe, 0)
})
