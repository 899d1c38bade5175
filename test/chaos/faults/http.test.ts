import assert from 'node:assert/strict'
import { test } from 'node:test'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { httpFaults } from '../../../src/chaos/faults/http.ts'
import { toolCall } from '../../support/caller.ts'
import { answering, testInjection } from '../../support/injection.ts'

const fault = httpFaults['http.status']
const never = () => assert.fail('the server got the call')
const stdio = { kindOf: () => ({ transport: 'stdio', era: 'legacy' }) as const }

test('the gateway gets a 503 in place of the reply, and the server never gets the call', async () => {
  const injection = testInjection()
  const outcome = await fault.layer(fault.schema.parse({}), injection)(never)(toolCall('echo'))
  assert.deepEqual(injection.replies, [{ status: 503, headers: { 'content-type': 'text/plain' }, body: '' }])
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_status')
  assert.deepEqual(injection.notes, [{ status: 503 }])
})

test('with side client, the agent gets the status, in front of any server', async () => {
  for (const faultEnvironment of [{}, stdio]) {
    const injection = testInjection({ side: 'client', faultEnvironment })
    const config = {
      status: 418,
      body: '{}',
      headers: { 'content-type': 'application/json', 'retry-after': '7' },
    }
    const { wire } = await fault.layer(fault.schema.parse(config), injection)(never)(toolCall('echo'))
    assert.deepEqual(wire, config)
  }
})

test('a stdio server has no HTTP status', async () => {
  assert.equal(
    refusalOf(fault, { transport: 'stdio', era: undefined }),
    'stdio has no HTTP status; see rpc.error',
  )
  assert.equal(refusalOf(fault, { transport: 'http', era: undefined }), undefined)
  const injection = testInjection({ faultEnvironment: stdio })
  const outcome = await fault.layer(fault.schema.parse({}), injection)(answering({}))(toolCall('echo'))
  assert.equal(outcome.kind, 'answered')
  assert.deepEqual(injection.inapplicable, ['stdio has no HTTP status'])
})

test('a status must be no success, and headers must not break out of their line or misstate the body', () => {
  const refused = [
    { status: 200 },
    { status: 600 },
    { headers: { 'X-Upper': '1' } },
    { headers: { x: 'a\r\nset-cookie: b' } },
    { headers: { 'content-length': '1' } },
  ]
  for (const config of refused)
    assert.equal(fault.schema.safeParse(config).success, false, JSON.stringify(config))
})
