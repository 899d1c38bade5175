import assert from 'node:assert/strict'
import { test } from 'node:test'
import { toolCall } from '../../support/caller.ts'
import { answer, fault, parsedFault, rig } from '../rig.ts'
import { injectedFaults } from '../../../src/mesh/injected.ts'

const read = (name: string, more: object = {}) => parsedFault(fault(name, 'test.spoil', more))

test('a fault of the runtime API ends when its time is over; the plan stays disarmed', async () => {
  const { apply, controller, send, clock } = rig()
  apply({ enabled: true, faults: [fault('planned', 'test.hold')] })
  const injected = controller.runtime.inject(read('quick'), 'api', 5_000)
  assert.ok(injected.ok && injected.id === 'fault-1')
  const call = toolCall('t')
  await send(call)
  assert.deepEqual(
    injectedFaults.of(call.record)?.map(({ name }) => name),
    ['quick'],
  )
  const [planned, quick] = controller.status().faults
  assert.deepEqual(
    [planned?.armed, quick?.armed, quick?.id, quick?.remainingMs],
    [false, true, 'fault-1', 5_000],
  )
  await clock.advance(5_000)
  assert.deepEqual(await send(toolCall('t')), answer())
  assert.deepEqual(controller.runtime.list(), [])
  assert.equal(controller.status().state, 'disarmed')
})

test('a fault that names a protected server is refused; a glob skips the protected server', async () => {
  const { apply, controller, send } = rig({ isProtected: (server) => server === 'test' })
  apply({ enabled: true })
  assert.deepEqual(controller.runtime.inject(read('a', { match: { server: 'test' } }), 'api'), {
    ok: false,
    why: 'match.server: "test" is protected (mcpServers.test.protected): no fault may aim at it',
  })
  assert.equal(controller.runtime.inject(read('b', { match: { server: '*' } }), 'api').ok, true)
  const call = toolCall('t')
  assert.deepEqual(await send(call), answer())
  assert.equal(injectedFaults.of(call.record), undefined)
})

test('runtime faults are cleared by id, or all at once, and the plan stays unchanged', () => {
  const { arm, controller } = rig()
  arm([fault('planned', 'test.spoil')])
  const [a] = ['a', 'b', 'c'].map((name) => controller.runtime.inject(read(name), 'api'))
  assert.deepEqual(controller.runtime.clear(a?.ok ? a.id : '', 'api'), { ok: true })
  assert.deepEqual(controller.runtime.clear('fault-9', 'api'), {
    ok: false,
    why: 'there is no fault fault-9',
  })
  assert.equal(controller.runtime.clearAll('api'), 2)
  assert.deepEqual(
    controller.status().faults.map(({ name, armed }) => [name, armed]),
    [['planned', true]],
  )
})

test('fault number 1,001 is refused, and so is a taken name', () => {
  const { arm, controller } = rig()
  arm([fault('planned', 'test.spoil')])
  const refusal = (name: string) => {
    const done = controller.runtime.inject(read(name), 'api')
    return done.ok ? undefined : done.why
  }
  assert.equal(refusal('planned'), 'there is a fault "planned" already')
  for (let number = 0; number < 1_000; number++) assert.equal(refusal(`f${number}`), undefined)
  assert.equal(refusal('f7'), 'there is a fault "f7" already')
  assert.equal(refusal('one-more'), 'too many faults (1000 of 1000)')
})

test('no fault of the runtime API lives longer than the plan allows', () => {
  const { apply, controller } = rig()
  apply({ enabled: true, maxTtl: '1m' })
  controller.runtime.inject(read('a'), 'api', 999_999)
  assert.equal(controller.status().faults[0]?.remainingMs, 60_000)
})

test('a header value to match may be a key, so neither the journal nor the log gets the value', () => {
  const { apply, controller, events } = rig()
  apply({ enabled: true })
  const match = { header: { authorization: 'Bearer?s3cret' } }
  assert.equal(controller.runtime.inject(read('keyed', { match }), 'api').ok, true)
  const told = [...controller.journal.entries(), ...events]
  assert.equal(told.length, 2)
  for (const entry of told) {
    assert.match(JSON.stringify(entry), /"header":{"authorization":"\[redacted\]"}/)
    assert.doesNotMatch(JSON.stringify(entry), /s3cret/)
  }
})

test('a fault with an unrenewed lease ends, and releases its calls', async () => {
  const { arm, controller, send, clock } = rig()
  arm([fault('planned', 'test.spoil', { match: { tool: 'other' } })])
  const hold = parsedFault(fault('kept', 'test.hold'))
  const injected = controller.runtime.inject(hold, 'api', 60_000, 5_000)
  const id = injected.ok ? injected.id : ''
  for (let second = 0; second < 20; second += 4) {
    await clock.advance(4_000)
    assert.deepEqual(controller.runtime.renew([id]), [])
  }
  const held = send(toolCall('t'))
  await clock.advance(4_999)
  assert.equal(controller.runtime.list().length, 1)
  await clock.advance(1)
  assert.deepEqual(await held, answer())
  assert.deepEqual(controller.runtime.list(), [])
  assert.deepEqual(controller.runtime.renew([id]), [id])
  const told = controller.journal.entries().findLast((entry) => entry.kind === 'control')
  assert.deepEqual(
    [told?.type, told?.by, told?.detail],
    ['cleared', 'lease', { id, fault: 'kept', why: 'nobody renewed the lease for 5s' }],
  )
  controller.disarm('me', 'the end')
  assert.equal(clock.pending, 0)
})
