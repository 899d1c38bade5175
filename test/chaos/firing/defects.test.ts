import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, rig } from '../rig.ts'

test('a fault that breaks at any point leaves the call unchanged and sent once', async () => {
  for (const at of ['build', 'before', 'after', 'reject', 'nothing']) {
    const set = rig()
    set.arm([fault('a', 'test.defect', { at })])
    assert.deepEqual(await set.send(toolCall('t')), answer(), at)
    assert.equal(set.served, 1, at)
    assert.equal(set.controller.status().engineErrors, 1, at)
    assert.equal(set.tally('a').concurrent, 0, at)
    assert.equal(set.controller.journal.decisions()[0]?.status, 'error', at)
  }
})

test('the engine disarms itself after its maximum of errors', async () => {
  const { send, arm, controller, typesOf } = rig()
  arm([fault('a', 'test.defect')], { engineErrors: 3 })
  for (let round = 0; round < 5; round++) await send(toolCall('t'))
  assert.equal(controller.status().state, 'disarmed')
  assert.equal(controller.status().by, 'engine')
  assert.equal(controller.status().engineErrors, 3)
  assert.deepEqual(typesOf(), ['armed', 'engine_error', 'engine_error', 'engine_error', 'disarmed'])
})

test('a strict engine fails the call instead', async () => {
  const { send, arm, controller } = rig()
  arm([fault('a', 'test.defect')], { strict: true, engineErrors: 3 })
  // Even after more errors than `engineErrors`, which would disarm a lenient engine.
  for (let round = 0; round < 12; round++) {
    const outcome = await send(toolCall('t'))
    assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'internal')
  }
  assert.deepEqual([controller.status().state, controller.status().engineErrors], ['armed', 12])
})

test('a broken decider does not stop the call, and no place is lost', async () => {
  let asked = 0
  const set = rig({
    effectOf: () => {
      if (++asked === 2) throw new Error('no catalog')
      return 'read_only'
    },
  })
  set.arm([fault('a', 'test.hold', { maxConcurrent: 1 }), fault('b', 'test.hold')])
  assert.deepEqual(await set.send(toolCall('t')), answer())
  assert.equal(set.served, 1)
  assert.equal(set.tally('a').concurrent, 0)
  assert.equal(set.controller.status().engineErrors, 1)
})

test('a defect below the engine is no error of the engine', async () => {
  const set = rig({ server: () => Promise.reject(new Error('not ours')) })
  set.arm([fault('a', 'test.spoil')])
  await assert.rejects(set.send(toolCall('t')), /not ours/)
  assert.equal(set.controller.status().engineErrors, 0)
  assert.equal(set.tally('a').concurrent, 0)
})

test('a listener that throws does not break a call', async () => {
  const set = rig({
    emit: () => {
      throw new Error('deaf')
    },
  })
  set.arm([fault('a', 'test.defect')])
  assert.deepEqual(await set.send(toolCall('t')), answer())
})

test('accounting that breaks does not break a call', async () => {
  const set = rig()
  set.arm([fault('a', 'test.spoil')])
  const call = toolCall('t')
  const outcome = await set.send(call)
  set.controller.journal.append = () => {
    throw new Error('full')
  }
  assert.deepEqual(set.account(call, outcome), [])
  assert.equal(set.controller.status().engineErrors, 1)
})
