import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { toolCall } from '../../support/caller.ts'
import { fault, rig } from '../rig.ts'

const plan = (faults: readonly object[], more: object = {}) => ({ enabled: true, faults, ...more })

test('no plan is armed when the process starts, unless the plan says so', () => {
  for (const persist of [false, true]) {
    const { apply, controller } = rig()
    apply(plan([fault('a', 'test.spoil')], { persist }))
    assert.equal(controller.status().state, persist ? 'armed' : 'disarmed')
  }
})

test('a reload that sets the flag arms the plan, and a reload that removes the flag disarms the plan', () => {
  const { apply, controller, typesOf } = rig()
  apply({ enabled: false, faults: [fault('a', 'test.spoil')] })
  apply(plan([fault('a', 'test.spoil')]))
  assert.equal(controller.status().state, 'armed')
  assert.equal(controller.status().by, 'config')
  apply({ enabled: false, faults: [fault('a', 'test.spoil')] })
  assert.equal(controller.status().state, 'disarmed')
  assert.deepEqual(typesOf(), ['plan', 'armed', 'plan', 'disarmed'])
})

test('a plan disarmed by an operator stays disarmed when the plan changes', () => {
  const { arm, apply, controller } = rig()
  arm([fault('a', 'test.spoil')])
  controller.disarm('me', 'enough')
  apply(plan([fault('b', 'test.spoil')]))
  assert.equal(controller.status().state, 'disarmed')
})

test('the status and the journal name the person who disarms, even when nothing is armed', () => {
  const { apply, controller, typesOf } = rig()
  const said = () => {
    const { state, by, why } = controller.status()
    return [state, by, why]
  }
  apply(plan([fault('a', 'test.spoil')]))
  controller.disarm('me', 'hands off')
  assert.deepEqual(said(), ['disarmed', 'me', 'hands off'])
  assert.deepEqual(typesOf().at(-1), 'disarmed')
  controller.kill('guard', 'smoke')
  controller.disarm('me', 'once more')
  assert.deepEqual(said(), ['killed', 'guard', 'smoke'])
  assert.deepEqual(typesOf().slice(-2), ['killed', 'disarmed'])
})

test('an edit of the config that enables faults arms the plan after a disarm, and the process that ends hides no reason', async () => {
  const { arm, apply, controller } = rig()
  const faults = [fault('a', 'test.spoil')]
  arm(faults)
  controller.disarm('me', 'enough')
  apply({ enabled: false, faults })
  assert.equal(controller.status().by, 'me')
  apply(plan(faults))
  assert.equal(controller.status().state, 'armed')
  controller.disarm('me', 'enough')
  await controller.stop()
  assert.equal(controller.status().by, 'me')
})

test('a plan that its config enables says which of its faults are not armed, and what arms them', () => {
  const { arm, apply, controller } = rig()
  apply(plan([]))
  assert.equal(controller.unarmed, undefined)
  apply(plan([fault('a', 'test.spoil'), fault('b', 'test.spoil')]))
  assert.match(controller.unarmed ?? '', /not armed: a, b; .*`breakwater chaos arm`/)
  arm([fault('a', 'test.spoil')])
  assert.equal(controller.unarmed, undefined)
  apply(plan([fault('a', 'test.spoil'), fault('b', 'test.spoil')]))
  assert.equal(controller.unarmed, undefined)
  controller.kill('me', 'smoke')
  assert.match(controller.unarmed ?? '', /not armed: a, b; .*the kill switch is on/)
  apply({ enabled: false, faults: [fault('a', 'test.spoil')] })
  assert.equal(controller.unarmed, undefined)
})

test('a reload keeps unchanged faults armed, with their counters and their time', async () => {
  const { arm, apply, send, clock, tally, events } = rig()
  arm([fault('same', 'test.spoil'), fault('other', 'test.spoil'), fault('gone', 'test.hold', { rate: 0 })])
  await send(toolCall('t'))
  await clock.advance(60_000)
  apply(
    plan([
      fault('new', 'test.spoil'),
      fault('same', 'test.spoil'),
      fault('other', 'test.spoil', { to: 'x' }),
    ]),
  )
  assert.equal(tally('same').hits, 1)
  assert.equal(tally('same').remainingMs, 3_540_000)
  assert.equal(tally('other').hits, 0)
  assert.equal(tally('other').remainingMs, 3_600_000)
  assert.equal(tally('new').armed, true)
  assert.deepEqual(events.find(({ type }) => type === 'plan')?.detail, {
    added: ['new'],
    removed: ['gone'],
    changed: ['other'],
    kept: ['same'],
    enabled: true,
    mode: 'act',
    seed: 0,
  })
  const outcome = await send(toolCall('t'))
  const was = outcome.kind === 'answered' && outcome.result.value.result
  assert.deepEqual(was, { structuredContent: { was: 'spoiled' } }, 'the new fault is the outermost')
})

test('a reload that removes a fault releases the calls held by the fault', async () => {
  const { arm, apply, send } = rig()
  arm([fault('a', 'test.hold'), fault('b', 'test.spoil')])
  const held = send(toolCall('t'))
  apply(plan([fault('b', 'test.spoil')]))
  assert.equal((await held).kind, 'answered')
})

test('a fault ends after its time and releases its calls; with the last fault the run ends', async () => {
  const { arm, send, clock, controller, typesOf } = rig()
  arm([fault('short', 'test.hold', { ttl: '1s' }), fault('long', 'test.spoil', { ttl: '2s' })])
  const held = send(toolCall('t'))
  await clock.advance(1_000)
  assert.equal((await held).kind, 'answered')
  assert.equal(controller.status().state, 'armed')
  await clock.advance(1_000)
  assert.equal(controller.status().state, 'disarmed')
  assert.deepEqual(typesOf(), ['armed', 'expired', 'expired', 'disarmed'])
  assert.equal(clock.pending, 0)
  controller.arm('me', 'again')
  assert.equal(controller.status().faults.filter(({ armed }) => armed).length, 2)
})

test('a run ends when nobody renews its lease', async () => {
  const { arm, clock, controller } = rig()
  arm([fault('a', 'test.spoil')], { lease: '10s' })
  await clock.advance(9_000)
  assert.equal(controller.status().leaseRemainingMs, 1_000)
  controller.renew('me')
  await clock.advance(9_999)
  assert.equal(controller.status().state, 'armed')
  await clock.advance(1)
  assert.equal(controller.status().state, 'disarmed')
  assert.equal(controller.status().by, 'lease')
  assert.deepEqual(controller.renew('me'), { ok: false, why: 'nothing is armed' })
})

test('after a plan without faults no plan is armed, and faults of the runtime API stay', () => {
  const { arm, apply, controller } = rig()
  const more = { lease: '10s' }
  arm([fault('a', 'test.spoil')], more)
  assert.equal(controller.runtime.inject(controller.config.faults[0]!, 'me').ok, false, 'the name is taken')
  assert.ok(controller.runtime.inject({ ...controller.config.faults[0]!, name: 'mine' }, 'me').ok)
  const states = () => controller.status().faults.map(({ name, armed }) => [name, armed])
  apply(plan([], more))
  assert.deepEqual(states(), [['mine', true]])
  const { state, why, leaseRemainingMs } = controller.status()
  assert.deepEqual(
    [state, why, leaseRemainingMs],
    ['armed', 'removed the plan; injected faults stay', undefined],
  )
  apply(plan([fault('b', 'test.spoil')], more))
  assert.deepEqual(states(), [
    ['b', false],
    ['mine', true],
  ])
})

test('disarming takes effect on calls in flight, and leaves no timer', async () => {
  const { arm, send, clock, controller } = rig()
  arm([fault('a', 'test.hold')], { lease: '10s' })
  const held = send(toolCall('t'))
  controller.disarm('me', 'enough')
  assert.equal((await held).kind, 'answered')
  assert.equal(controller.journal.decisions()[0]?.released, 'disarmed')
  assert.equal(clock.pending, 0)
})

test('no fault can be armed while the process is shutting down', async () => {
  const { arm, controller } = rig()
  await controller.stop()
  assert.deepEqual(arm([fault('a', 'test.hold')]), {
    ok: false,
    why: 'refused: the gateway is shutting down',
  })
})

test('the kill switch stays on while the kill file is there', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'kill-'))
  t.after(() => rm(folder, { recursive: true }))
  const killFile = join(folder, 'stop')
  await writeFile(killFile, '')
  const { apply, controller } = rig()
  apply({ enabled: true, killFile })
  assert.deepEqual(controller.unkill('me', 'a test'), {
    ok: false,
    why: `refused: the kill file ${killFile} exists; remove it first`,
  })
  assert.equal(controller.killSwitch.on, true)
  await rm(killFile)
  assert.deepEqual(controller.unkill('me', 'a test'), { ok: true })
  await controller.close()
})

test('switching to shadow releases held calls, and keeps the plan armed', async () => {
  const { arm, apply, send, controller, tally } = rig()
  arm([fault('a', 'test.hold')])
  const held = send(toolCall('t'))
  apply(plan([fault('a', 'test.hold')], { mode: 'shadow' }))
  await held
  assert.equal(controller.status().state, 'armed')
  await send(toolCall('t'))
  assert.deepEqual([tally('a').hits, tally('a').shadowed], [1, 1])
})

test('a new seed begins a new run', async () => {
  const { arm, apply, send, tally } = rig()
  arm([fault('a', 'test.spoil')])
  await send(toolCall('t'))
  apply(plan([fault('a', 'test.spoil')], { seed: 2 }))
  assert.equal(tally('a').hits, 0)
})

test('a status is plain JSON', () => {
  const { arm, controller } = rig()
  arm([fault('a', 'test.spoil', { match: { tool: 'x*' } })])
  const status = controller.status()
  assert.equal(status.faults[0]?.target, '*/x*')
  assert.deepEqual(JSON.parse(JSON.stringify(status)).faults[0].config.match, { tool: 'x*' })
})
