import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connectionFaults, refused } from '../../../../src/chaos/faults/connection.ts'
import { gatewayError } from '../../../../src/mesh/errors.ts'
import { toolCall } from '../../../support/caller.ts'
import { testInjection } from '../../../support/injection.ts'

test('a refused connection fails as a real one does, and the server never gets the call', async () => {
  const injection = testInjection()
  const outcome = await refused.layer({}, injection)()(toolCall('echo'))
  assert.deepEqual(outcome, {
    kind: 'failed',
    error: {
      reason: 'upstream_unavailable',
      code: 1503,
      retryable: true,
      message: 'cannot connect (ECONNREFUSED)',
      sent: false,
      retryAfterMs: undefined,
    },
  })
  assert.deepEqual(injection.notes, [{ effect: 'refused' }])
})

test('a refused stdio server cannot be started', async () => {
  const injection = testInjection({
    faultEnvironment: {
      kindOf: () => ({ transport: 'stdio', era: 'legacy' }),
      unreachable: () => gatewayError('upstream_unavailable', 'cannot start npx (EAGAIN)'),
    },
  })
  const outcome = await refused.layer({}, injection)()(toolCall('echo'))
  assert.equal(outcome.kind === 'failed' && outcome.error.message, 'cannot start npx (EAGAIN)')
})

test('with side client, the connection of the agent breaks', async () => {
  const injection = testInjection({ side: 'client' })
  const outcome = await refused.layer({}, injection)()(toolCall('echo'))
  assert.deepEqual(outcome.wire, { end: 'reset' })
  assert.deepEqual(injection.disconnects, ['cannot connect (ECONNREFUSED)'])
})

test('every kind is described, and can hit lists as well as calls', () => {
  for (const [name, fault] of Object.entries(connectionFaults)) {
    assert.notEqual(fault.about, '', name)
    assert.ok(fault.methods.includes('tools/list') && fault.methods.includes('tools/call'), name)
  }
})

test('no kind of fault accepts an unknown field', () => {
  for (const [name, { schema }] of Object.entries(connectionFaults))
    assert.equal(
      schema.safeParse({ distribution: { kind: 'fixed', delay: 1 }, other: 1 }).success,
      false,
      name,
    )
})
