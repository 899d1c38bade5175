import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connectionFaults } from '../../../../src/chaos/faults/connection.ts'
import { refused } from '../../../../src/chaos/faults/connection/refused.ts'
import { toolCall } from '../../../support/caller.ts'
import { testShot } from '../../../support/shot.ts'

test('a refused connection fails as a real one does, and the server never gets the call', async () => {
  const shot = testShot()
  const outcome = await refused.layer({}, shot)()(toolCall('echo'))
  assert.deepEqual(outcome, {
    kind: 'failed',
    error: {
      reason: 'upstream_unavailable',
      message: 'cannot connect (ECONNREFUSED)',
      sent: false,
      retryAfterMs: undefined,
    },
  })
  assert.deepEqual(shot.notes, [{ effect: 'refused' }])
})

test('a server that is a process cannot be started', async () => {
  const shot = testShot({ world: { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) } })
  const outcome = await refused.layer({}, shot)()(toolCall('echo'))
  assert.equal(outcome.kind === 'failed' && outcome.error.message, 'cannot start the server (EAGAIN)')
})

test("on the agent's side it is the agent whose connection breaks", async () => {
  const shot = testShot({ side: 'client' })
  const outcome = await refused.layer({}, shot)()(toolCall('echo'))
  assert.deepEqual(outcome.wire, { end: 'reset' })
  assert.deepEqual(shot.disconnects, ['cannot connect (ECONNREFUSED)'])
})

test('every kind is described, and can hit lists as well as calls', () => {
  for (const [name, fault] of Object.entries(connectionFaults)) {
    assert.notEqual(fault.about, '', name)
    assert.ok(fault.methods.includes('tools/list') && fault.methods.includes('tools/call'), name)
  }
})

test('no kind takes a field that it does not know', () => {
  for (const [name, { schema }] of Object.entries(connectionFaults))
    assert.equal(
      schema.safeParse({ distribution: { kind: 'fixed', delay: 1 }, other: 1 }).success,
      false,
      name,
    )
})
