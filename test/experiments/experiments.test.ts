import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ExperimentConfig, Experiments } from '../../src/experiments/experiments.ts'
import { experiment as schema } from '../../src/experiments/schema.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import { newCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'

const answered: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'correct',
}

const named = (name: string, more: object = {}) =>
  schema.parse({ name, arms: { control: 'default', treatment: 'cautious' }, minimum: 20, ...more })

/** Experiments over servers `a` and `b`; `put` has a config come into force. */
function stage() {
  const clock = new ManualClock()
  const told: string[] = []
  let config: ExperimentConfig
  let assign: ReturnType<Experiments['assignIn']>
  const experiments: Experiments = new Experiments({
    clock,
    quiet: () => 1_000,
    refresh: () => put(config),
    emit: (event) =>
      told.push(event.type === 'ended' ? `${event.name} ended: ${event.reason}` : `${event.name} started`),
  })
  function put(next: ExperimentConfig): void {
    config = next
    assign = experiments.assignIn(next)
    experiments.follow(next)
  }
  return {
    clock,
    told,
    experiments,
    /** A config with these experiments, and these settings of the set `cautious`. */
    put: (list: readonly ReturnType<typeof named>[], cautious: object = {}) =>
      put({
        experiments: list,
        policies: { defaults: {}, overrides: [], sets: { cautious } },
        mcpServers: { a: {}, b: {} },
      }),
    arms: () => Object.keys(experiments.armsIn(config)),
    /** A call of a task that goes to server `a`, from its beginning to its end; the arm that it was in. */
    call(task: string, outcome: Outcome = answered): string {
      const call = newCall({
        method: 'tools/call',
        server: 'a',
        params: { name: 't', _meta: { 'dev.breakwater/intent': task } },
      })
      assign?.(call)
      experiments.end(call, outcome)
      return call.record.arm
    },
  }
}

const rejected: Outcome = {
  kind: 'failed',
  error: { reason: 'internal', message: '', retryable: false, retryAfterMs: undefined, sent: true } as never,
}

test('an experiment runs from the config on, and one that is not active when it is started', () => {
  const { put, experiments, told, arms, call } = stage()
  put([named('one', { match: { server: 'a' } }), named('two', { active: false, match: { server: 'b' } })])
  assert.deepEqual(arms(), ['one/control', 'one/treatment'])
  assert.match(call('t'), /^one\/(control|treatment)$/)
  assert.deepEqual(experiments.start('two'), { ok: true })
  assert.equal(arms().length, 4)
  assert.deepEqual(experiments.start('two'), { ok: false, why: 'experiment "two" runs already' })
  assert.deepEqual(experiments.stop('two'), { ok: true })
  assert.deepEqual(experiments.stop('two'), { ok: false, why: 'experiment "two" does not run' })
  assert.deepEqual(experiments.stop('three'), { ok: false, why: 'there is no experiment "three"' })
  assert.deepEqual(told, ['one started', 'two started', 'two ended: it was stopped by hand'])
})

test('of experiments that would take the same calls one runs at a time', () => {
  const { put, experiments, arms } = stage()
  put([named('one'), named('two', { active: false })])
  assert.deepEqual(experiments.start('two'), {
    ok: false,
    why: 'experiment "one" runs, and takes calls that this one would take',
  })
  experiments.stop('one')
  assert.deepEqual(experiments.start('two'), { ok: true })
  // One that has become active waits for the one that runs.
  put([named('one', { salt: 'new' }), named('two', { active: false })])
  assert.deepEqual(arms(), ['two/control', 'two/treatment'])
})

test('a reload with the same settings changes nothing, and one with others begins anew', () => {
  const { put, told, experiments } = stage()
  put([named('one')])
  const { run } = experiments.get('one')!
  put([named('one')])
  assert.equal(experiments.get('one')?.run, run)
  put([named('one', { matters: 0.1 })])
  assert.notEqual(experiments.get('one')?.run, run)
  put([named('one', { matters: 0.1, active: false })])
  put([])
  assert.deepEqual(told, [
    'one started',
    'one ended: its settings changed',
    'one started',
    'one ended: "active" is false now',
  ])
  assert.deepEqual(experiments.list(), [])
})

test('a changed policy set ends an experiment, which then waits for somebody to start it', () => {
  const { put, told, experiments, call } = stage()
  put([named('one')])
  put([named('one')], { retry: false })
  put([named('one')], { retry: false })
  assert.deepEqual(told, ['one started', 'one ended: the policy set "cautious" changed'])
  assert.equal(call('t'), '')
  assert.deepEqual(experiments.start('one'), { ok: true })
})

test('harm ends an experiment early, and calls take the usual way again', async () => {
  const { put, told, call, clock, experiments } = stage()
  put([named('one', { minimum: 200 })])
  for (let task = 0; task < 160; task++) {
    const arm = call(`task ${task}`)
    if (arm === 'one/treatment') call(`task ${task}`, rejected)
  }
  await clock.advance(3_000)
  assert.deepEqual(told, ['one started', 'one ended: an arm did harm'])
  assert.equal(call('task 0'), '')
  const { verdict } = experiments.get('one')!.run!.judgement
  assert.deepEqual([verdict.result, verdict.harm], ['worse', true])
})

test('an experiment ends after its longest time, invalid where it has too few units', async () => {
  const { put, told, clock, experiments, call } = stage()
  put([named('one', { longest: '10s' })])
  call('only one')
  await clock.advance(11_000)
  assert.deepEqual(told, ['one started', 'one ended: its longest time was over'])
  assert.equal(experiments.get('one')?.run?.judgement.verdict.result, 'invalid')
  assert.equal(clock.pending, 0)
})

test('a task counts once it is over: when it was quiet for long enough, or was reported', async () => {
  const { put, call, clock, experiments } = stage()
  const units = () => {
    const { control = 0, treatment = 0 } = experiments.get('one')!.run!.judgement.units
    return control + treatment
  }
  put([named('one')])
  call('quiet')
  const arm = call('reported')
  assert.equal(units(), 0)
  experiments.report({ source: 'meta', tenant: 'test', id: 'reported', arm }, 'succeeded')
  await clock.advance(1)
  const reported = units()
  await clock.advance(1_000)
  assert.deepEqual([reported, units()], [1, 2])
})

test('beyond the room for units calls are counted, and stay in their arms', () => {
  const { put, call, experiments } = stage()
  put([named('one')])
  for (let task = 0; task < 50_010; task++) call(`task ${task}`)
  const { samples } = experiments.get('one')!.run!
  assert.deepEqual([samples.all().length, samples.dropped], [50_000, 10])
  assert.notEqual(call('one more'), '')
  put([named('one', { salt: 'again' })])
  assert.equal(experiments.get('one')?.run?.samples.all().length, 0)
  call('task 0')
  assert.equal(experiments.get('one')?.run?.samples.all().length, 1)
})

test('configs that follow one another do not put a look off', async () => {
  const { put, told, clock } = stage()
  for (let at = 0; at < 30; at++) {
    put([named('one', { longest: '10s' })])
    await clock.advance(500)
  }
  assert.deepEqual(told, ['one started', 'one ended: its longest time was over'])
})
