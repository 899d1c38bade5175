import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Experiments } from '../../../src/experiments/experiments.ts'
import { GuardedArms } from '../../../src/experiments/guarded/arms.ts'
import { Measured, Meter } from '../../../src/experiments/guarded/meter.ts'
import { measuredUnit } from '../../../src/experiments/samples.ts'
import { experiment } from '../../../src/experiments/schema.ts'
import { retries } from '../../../src/policies/retry/tries.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { injectedFaults } from '../../../src/mesh/injected.ts'
import { newCall, TestCaller } from '../../support/caller.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { specOf } from './world.ts'

const answered: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'correct',
}

const config = {
  experiments: [],
  policies: { defaults: {}, overrides: [], sets: {} },
  mcpServers: { a: {}, b: {} },
}

function stage() {
  const clock = new ManualClock()
  const comparisons = new Experiments({
    clock,
    quiet: () => 1_000,
    refresh: () => undefined,
    forget: () => undefined,
    emit: () => undefined,
    taken: () => arms.taken,
  })
  const arms: GuardedArms = new GuardedArms(comparisons, clock, retries)
  const meter = new Meter(clock)
  /** The arms of tasks, as the current generation assigns arms. */
  const armsOf = (tasks: readonly string[], server = 'a') => {
    const assign = arms.assignIn(config)
    return tasks.map((task) => {
      const call = newCall({
        method: 'tools/call',
        server,
        params: { name: 't', _meta: { 'dev.breakwater/intent': task } },
      })
      assign?.(call)
      arms.end(call.record, answered)
      return call.record.arm
    })
  }
  return { clock, comparisons, arms, meter, armsOf }
}

const tasks = Array.from({ length: 2_000 }, (_, n) => `task ${n}`)

test('without a run, no call is assigned and no arm exists', () => {
  const { arms } = stage()
  assert.equal(arms.assignIn(config), undefined)
  assert.deepEqual([arms.armsIn(config), arms.names, arms.taken], [{}, [], undefined])
})

test('a larger share moves nobody from the treatment back to the control', () => {
  const { arms, meter, armsOf } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  let before: readonly string[] = armsOf(tasks)
  assert.ok(before.every((arm) => arm === ''))
  for (const share of [0.1, 0.25, 0.5, 0.9]) {
    arms.split(spec, share)
    const now = armsOf(tasks)
    const got = now.filter((arm) => arm === 'drill/treatment').length / tasks.length
    assert.ok(Math.abs(got - share) < 0.04, `${got} of ${share}`)
    assert.ok(before.every((arm, at) => arm !== 'drill/treatment' || now[at] === arm))
    before = now
  }
})

test('a generation made for a stage assigns no call after the arms have ended', () => {
  const { arms, meter } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  arms.split(spec, 0.5)
  const old = arms.assignIn(config)!
  arms.join()
  const call = newCall({ method: 'tools/call', server: 'a', params: { name: 't' } })
  old(call)
  assert.equal(call.record.arm, '')
  assert.ok(measuredUnit.of(call.record) instanceof Measured, 'measuring goes on')
  arms.clear()
  const later = newCall({ method: 'tools/call', server: 'a', params: { name: 't' } })
  old(later)
  assert.equal(measuredUnit.of(later.record), undefined)
})

test('calls to other servers are ignored, and available to comparisons', () => {
  const { arms, meter, armsOf, comparisons } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  arms.split(spec, 0.5)
  assert.ok(armsOf(tasks, 'b').every((arm) => arm === ''))
  const other = experiment.parse({
    name: 'canary',
    arms: { control: 'x', treatment: 'y' },
    match: { server: 'b' },
  })
  const both = { ...config, experiments: [other] }
  comparisons.follow(both)
  const assign = arms.assignIn(both)!
  const call = newCall({ method: 'tools/call', server: 'b', params: { name: 't' } })
  assign(call)
  assert.match(call.record.arm, /^canary\//)
  assert.deepEqual(Object.keys(arms.armsIn(both)).sort(), [
    'canary/control',
    'canary/treatment',
    'drill/control',
    'drill/treatment',
  ])
})

test('a comparison that would take its calls does not begin, from the config or by hand', () => {
  const { arms, meter, comparisons } = stage()
  arms.measure(specOf(), meter)
  const other = experiment.parse({ name: 'canary', arms: { control: 'x', treatment: 'y' } })
  comparisons.follow({ ...config, experiments: [other] })
  assert.equal(comparisons.get('canary')?.run, undefined)
  assert.deepEqual(comparisons.start('canary'), {
    ok: false,
    why: 'experiment "drill" already runs at a server of this experiment: only experiments that a config starts together share servers',
  })
})

test('calls of agents without a task and a session are drawn each by itself: a stage hits no more than its share', () => {
  const { arms, meter } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  arms.split(spec, 0.1)
  const assign = arms.assignIn(config)!
  const treated = Array.from({ length: 2_000 }, () => {
    const caller = new TestCaller({ era: 'modern' })
    const call = newCall({ method: 'tools/call', server: 'a', caller, params: { name: 't' } })
    assign(call)
    return call.record.arm
  }).filter((arm) => arm === 'drill/treatment').length
  assert.ok(treated > 140 && treated < 260, String(treated))
})

const refused: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: { error: { code: -32602, message: 'Invalid params' } }, status: 200 },
  verdict: 'rpc_error',
}

test('an error that blames the caller counts as failed if hit by a fault, and is not counted otherwise', () => {
  const { arms, meter } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  arms.split(spec, 0.9)
  const assign = arms.assignIn(config)!
  for (const task of tasks.slice(0, 100)) {
    const _meta = { 'dev.breakwater/intent': task }
    const call = newCall({ method: 'tools/call', server: 'a', params: { name: 't', _meta } })
    assign(call)
    if (call.record.arm === 'drill/treatment')
      injectedFaults.note(call.record, [{ name: 'f', type: 'rpc.error', status: 'applied' } as never])
    arms.end(call.record, refused)
  }
  const [treatment, control] = [meter.since('treatment'), meter.since('control')]
  assert.ok(treatment.calls > 50)
  assert.equal(treatment.failed, treatment.calls)
  assert.equal(control.calls, 0)
})

test('a cancelled call counts with its waiting time, and as failed if hit by a fault', async () => {
  const { arms, meter, clock } = stage()
  const spec = specOf()
  arms.measure(spec, meter)
  arms.split(spec, 0.9)
  const assign = arms.assignIn(config)!
  const given: Outcome = { kind: 'failed', error: gatewayError('cancelled', 'gave up') }
  for (const task of tasks.slice(0, 100)) {
    const _meta = { 'dev.breakwater/intent': task }
    const call = newCall({ method: 'tools/call', server: 'a', params: { name: 't', _meta } })
    assign(call)
    if (call.record.arm === 'drill/treatment')
      injectedFaults.note(call.record, [{ name: 'f', type: 'conn.half_open', status: 'applied' } as never])
    await clock.advance(1)
    arms.end(call.record, given)
  }
  const [treatment, control] = [meter.since('treatment'), meter.since('control')]
  assert.equal(treatment.failed, treatment.calls)
  assert.ok(treatment.calls > 50 && control.calls > 0)
  assert.equal(control.failed, 0)
})
