import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome, Service } from '../../../src/mesh/call.ts'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { compileMesh } from '../../../src/mesh/compile.ts'
import { gatewayError, type GatewayError } from '../../../src/mesh/errors.ts'
import { attemptTimeout } from '../../../src/policies/attempt-timeout.ts'
import { deadline } from '../../../src/policies/deadline.ts'
import { degrade } from '../../../src/policies/degrade.ts'
import { idempotency } from '../../../src/policies/idempotency.ts'
import { testPolicyContext } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { noFaults } from '../../support/no-faults.ts'
import { answerTo, errorOf, keyed, read } from './keyed.ts'

/** A mesh with a deadline of 1 s over a server that needs 3 s, and a count of the server's runs. */
function slowMesh(degraded: object | false) {
  const clock = new ManualClock()
  let runs = 0
  const transport: Service = (call) => {
    runs++
    call.record.sent = true
    return clock.sleep(3_000, call.signal).then(
      () => answerTo(call, { done: true }),
      (error: GatewayError) => ({ kind: 'failed', error }),
    )
  }
  const mesh = compileMesh({
    policies: { deadline, degrade, idempotency, attemptTimeout },
    config: {
      defaults: {
        deadline: deadline.schema.parse({ total: '1s' }),
        degrade: degraded && degrade.schema.parse(degraded),
        idempotency: idempotency.schema.parse({}),
        attemptTimeout: attemptTimeout.schema.parse({}),
      },
      overrides: [],
    },
    context: testPolicyContext(clock),
    servers: new Map(),
    readdress: () => undefined,
    observe: (next) => next,
    attempt: (next) => next,
    faults: noFaults,
    transport,
  })
  const send = (call: ReturnType<typeof keyed>) => {
    const sent: { outcome?: Outcome } = {}
    void mesh
      .serviceFor(
        'test',
        'tools/call',
        'tool',
      )(call)
      .then((outcome) => (sent.outcome = outcome))
    return sent
  }
  return { clock, send, runs: () => runs }
}

test('a call that outlives the deadline of its caller runs once, and a later try gets its answer', async () => {
  const { clock, send, runs } = slowMesh(false)
  const first = send(keyed('k', { startedAt: 0 }))
  await clock.advance(1_000)
  assert.equal(errorOf(first)?.reason, 'deadline_exceeded')
  assert.equal(errorOf(first)?.sent, true)
  const second = send(keyed('k', { startedAt: 1_000 }))
  await clock.advance(1_000)
  assert.equal(errorOf(second)?.reason, 'deadline_exceeded')
  const third = send(keyed('k', { startedAt: 2_000, id: 'third' }))
  await clock.advance(1_000)
  assert.deepEqual(read(third), { id: 'third', result: { done: true }, valueId: 'third' })
  assert.equal(runs(), 1)
})

test('a degraded answer takes nothing away: the call goes on, and a later try gets the real one', async () => {
  const { clock, send, runs } = slowMesh({ static: { text: 'still working' } })
  const first = send(keyed('k', { startedAt: 0 }))
  await clock.advance(1_000)
  assert.match(JSON.stringify(read(first)?.result), /still working/)
  await clock.advance(2_000)
  const later = send(keyed('k', { startedAt: 3_000 }))
  await clock.advance(0)
  assert.deepEqual(read(later)?.result, { done: true })
  assert.equal(runs(), 1)
})

test('a caller that cancels gets no degraded answer, and does not end the call', async () => {
  const { clock, send, runs } = slowMesh({ static: { text: 'still working' } })
  const signal = new Cancellation()
  const first = send(keyed('k', { signal }))
  signal.abort(gatewayError('cancelled', 'gave up'))
  await clock.advance(0)
  assert.equal(errorOf(first)?.reason, 'cancelled')
  await clock.advance(2_500)
  const again = send(keyed('k', { startedAt: 2_500 }))
  await clock.advance(500)
  assert.ok(read(again))
  assert.equal(runs(), 1)
})
