import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withoutSecrets } from '../../../src/chaos/plan/schema.ts'

test('values of headers are not shown, neither of those that are matched nor of those that are sent', () => {
  const fault = {
    name: 'moved',
    type: 'http.status',
    status: 302,
    match: { server: 's', header: { 'x-key': 'secret-a' } },
    headers: { location: 'https://user:secret-b@host', 'set-cookie': 'secret-c' },
  }
  assert.deepEqual(withoutSecrets({ faults: [fault] }), {
    faults: [
      {
        ...fault,
        match: { server: 's', header: { 'x-key': '[redacted]' } },
        headers: { location: '[redacted]', 'set-cookie': '[redacted]' },
      },
    ],
  })
  assert.equal(fault.headers['set-cookie'], 'secret-c', 'the fault itself is unchanged')
})

test('a key named headers outside of a fault is shown', () => {
  const shown = { at: 'headers', headers: { calls: 3 }, type: undefined }
  assert.deepEqual(withoutSecrets(shown), shown)
  const reset = { type: 'conn.reset', at: 'headers', headers: 'none' }
  assert.deepEqual(withoutSecrets(reset), reset)
})
