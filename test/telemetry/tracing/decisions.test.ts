import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { CallRecord, Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { answered, retrying, tracedMesh, unavailable, type MeshSetUp } from './traced-mesh.ts'
import { invalidArguments } from '../../../src/policies/arguments.ts'
import { bulkheadFull } from '../../../src/policies/bulkhead.ts'
import { replayed } from '../../../src/policies/idempotency/stored-outcome.ts'
import { hedges, retryRefused } from '../../../src/policies/retry/tries.ts'
import { infeasible } from '../../../src/policies/route/feasibility.ts'

/** Returns the events of a call with this outcome, and the attributes of its span. */
async function told(
  t: TestContext,
  note: (record: CallRecord) => void,
  outcome: Outcome,
  more: MeshSetUp = {},
) {
  const mesh = await tracedMesh(t, {
    upstream: ({ record }) => {
      note(record)
      return outcome
    },
    ...more,
  })
  await mesh.run()
  await mesh.spans()
  const [server] = mesh.receiver.of('server')
  const events = server?.events.map(({ name, attributes }) => ({ name, ...attributes }))
  return { events, attributes: server?.attributes ?? {} }
}

const event = (policy: string | undefined, decision: string, reason?: string) => ({
  name: 'breakwater.policy',
  ...(policy !== undefined && { 'breakwater.policy.name': policy }),
  'breakwater.policy.decision': decision,
  ...(reason !== undefined && { 'breakwater.policy.reason': reason }),
})

test('events hold the decisions of policies', async (t) => {
  const error = gatewayError(bulkheadFull, 'full (8 of 8)')
  const note = (record: CallRecord) => {
    invalidArguments.note(record, true)
    infeasible.note(record, true)
    replayed.note(record, 'joined')
    hedges.note(record, 1)
    retryRefused.note(record, 'unsafe')
    record.supersededRejections = ['breaker_open']
  }
  const { events, attributes } = await told(t, note, { kind: 'rejected', by: 'bulkhead', error })
  assert.equal(attributes['breakwater.rejected_by'], 'bulkhead')
  assert.equal(attributes['error.type'], 'bulkhead_full')
  assert.deepEqual(events, [
    event('arguments', 'invalid'),
    event('idempotency', 'replayed', 'joined'),
    event('retry', 'refused', 'unsafe'),
    event('hedge', 'sent'),
    event('route', 'infeasible'),
    event(undefined, 'rejected', 'breaker_open'),
    event('bulkhead', 'rejected', 'bulkhead_full'),
  ])
})

test('an answer that another stands in for is a decision, and what a server declares to be partial is none', async (t) => {
  const partial = (source: 'stale' | 'fallback' | 'declared') =>
    answered({}, { partial: { source, reason: 'it is down', notice: true } })
  const nothing = () => undefined
  assert.deepEqual((await told(t, nothing, partial('stale'))).events, [event('degrade', 'served', 'stale')])
  assert.deepEqual((await told(t, nothing, partial('fallback'))).events, [
    event('degrade', 'served', 'fallback'),
  ])
  assert.deepEqual((await told(t, nothing, partial('declared'))).events, [])
})

test('a retry is a decision', async (t) => {
  const { events } = await told(t, () => undefined, answered(), {
    settings: retrying,
    upstream: ({ attempt }) => (attempt === 1 ? unavailable : answered()),
  })
  assert.deepEqual(events, [event('retry', 'sent')])
})
