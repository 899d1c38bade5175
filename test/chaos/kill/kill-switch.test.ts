import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { watchKillFile, KillSwitch } from '../../../src/chaos/kill/kill-switch.ts'
import { systemClock } from '../../../src/mesh/clock.ts'
import { toolCall } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'
import { answer, fault, rig } from '../rig.ts'

import assert from 'node:assert/strict'

test('a kill lets go of a thousand held calls at once, unharmed', async () => {
  const { arm, send, clock, controller, tally } = rig()
  arm([fault('a', 'test.hold', { maxConcurrent: 1_000 }), fault('b', 'test.spoil')])
  const held = Array.from({ length: 1_000 }, (_, x) => send(toolCall('t', { x })))
  assert.equal(tally('a').concurrent, 1_000)
  const timers = clock.pending
  controller.kill('me', 'enough')
  // Checked at once, not a microtask later: a released pause cancels its timer.
  assert.equal(clock.pending, 0)
  assert.ok(timers >= 1_000)
  const outcomes = await Promise.all(held)
  assert.equal(clock.now(), 0)
  assert.ok(outcomes.every((outcome) => outcome.kind === 'answered'))
  assert.deepEqual(outcomes[0], answer(), 'later calls are not spoiled')
  assert.equal(tally('a').concurrent, 0)
  assert.equal(controller.journal.decisions()[0]?.released, 'killed')
})

test('the kill switch prevents arming and hits, and lifting the switch arms nothing', async () => {
  const { arm, send, controller, typesOf } = rig()
  arm([fault('a', 'test.spoil')])
  controller.kill('me', 'enough')
  assert.equal(controller.status().state, 'killed')
  assert.equal(controller.status().why, 'enough')
  assert.deepEqual(await send(toolCall('t')), answer())
  assert.deepEqual(controller.arm('me', 'again'), {
    ok: false,
    why: 'refused: the kill switch is on; unkill first',
  })
  controller.unkill('me', 'it was a drill')
  assert.equal(controller.status().state, 'disarmed')
  assert.equal(controller.arm('me', 'again').ok, true)
  assert.deepEqual(typesOf(), ['armed', 'killed', 'refused', 'unkilled', 'armed'])
})

test('the switch alone stops everything, even with a broken engine', async () => {
  const { arm, send, controller } = rig({
    emit: ({ type }) => {
      if (type === 'killed') throw new Error('broken')
    },
  })
  arm([fault('a', 'test.hold'), fault('b', 'test.spoil')])
  const held = send(toolCall('t'))
  controller.engine.arm = () => {
    throw new Error('broken')
  }
  controller.killSwitch.kill('signal', 'SIGUSR2')
  assert.deepEqual(await held, answer())
  assert.deepEqual(await send(toolCall('t')), answer())
})

test('a throwing listener does not prevent the release of other calls', () => {
  const kill = new KillSwitch(new ManualClock())
  let told = 0
  kill.signal.addEventListener('abort', () => {
    throw new Error('broken')
  })
  kill.signal.addEventListener('abort', () => told++)
  kill.kill('me', 'enough')
  assert.equal(told, 1)
})

test('a file throws the switch, and throws it again while the file exists', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'kill-'))
  const path = join(folder, 'stop')
  const kill = new KillSwitch(new ManualClock())
  const close = watchKillFile(path, kill, systemClock)
  try {
    assert.equal(kill.on, false)
    await writeFile(path, '')
    await until('the switch is thrown', () => kill.on)
    assert.deepEqual(kill.killed, { by: 'file', why: `${path} exists`, at: Date.UTC(2026, 0, 1), tookMs: 0 })
    kill.lift()
    await until('the switch is thrown', () => kill.on)
  } finally {
    close()
    await rm(folder, { recursive: true })
  }
})

test('a link that leads nowhere throws the switch like any other file', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'kill-'))
  const path = join(folder, 'stop')
  await symlink(join(folder, 'missing'), path)
  const atOnce = new KillSwitch(new ManualClock())
  const later = new KillSwitch(new ManualClock())
  const closings = [watchKillFile(path, atOnce, systemClock)]
  try {
    assert.equal(atOnce.on, true)
    await rm(path)
    closings.push(watchKillFile(path, later, systemClock))
    assert.equal(later.on, false)
    await symlink(join(folder, 'missing'), path)
    await until('the switch is thrown', () => later.on)
  } finally {
    for (const close of closings) close()
    await rm(folder, { recursive: true })
  }
})
