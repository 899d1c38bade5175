import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GuardedArms } from '../../src/experiments/guarded/arms.ts'
import { Meter } from '../../src/experiments/guarded/meter.ts'
import { worldOf } from '../../src/gateway/guarded/world.ts'
import { retries } from '../../src/policies/retry/tries.ts'
import { systemClock } from '../../src/mesh/clock.ts'
import { States } from '../../src/mesh/state.ts'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { killAll } from '../e2e/support/program.ts'
import { recordOf, specOf } from '../experiments/guarded/world.ts'
import { recordedLog } from '../support/log.ts'
import { noExperiments } from '../support/no-experiments.ts'
import { until } from '../support/until.ts'
import { runGateway } from './running-gateway.ts'

test('faults of a run that has died of a defect, and renews nothing, end by themselves within seconds', async (t) => {
  t.after(killAll)
  const flaky = await FlakyServer.start()
  const { gateway, live, isUp } = await runGateway(t, {
    servers: { a: { url: flaky.url, trusted: true } },
    gateway: { environment: 'staging' },
    chaos: { enabled: true },
  })
  await isUp('a')
  const clock = systemClock
  const world = worldOf(recordOf(specOf()), new Meter(clock), {
    clock,
    log: recordedLog().log,
    live,
    controller: gateway.chaos,
    state: new States(clock),
    arms: new GuardedArms(noExperiments, clock, retries),
    refresh: () => undefined,
    exceededBy: () => undefined,
    play: () => () => undefined,
  })
  const armed = () => gateway.chaos.status().faults.filter((fault) => fault.armed)
  world.begin()
  world.arm({ index: 0, share: 0.5, remainingMs: 600_000 })
  const [fault] = armed()
  assert.equal(fault?.config.match?.arm, 'drill/treatment')
  assert.ok(fault.remainingMs <= 630_000, 'nor for longer than its stages and half a minute')
  assert.equal(world.renew(), undefined)
  await until('the faults have ended', () => armed().length === 0)
  assert.equal(world.renew(), 'faults of the run ended before the run: broken')
  assert.deepEqual(world.rollback(), { armed: [], arms: [], chaos: 'disarmed' })
})
