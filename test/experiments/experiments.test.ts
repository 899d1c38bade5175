import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ExperimentConfig } from '../../src/experiments/agenda.ts'
import { type EndedRun, type ExperimentEvent, Experiments } from '../../src/experiments/experiments.ts'
import { experiment as schema } from '../../src/experiments/schema.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import type { PolicySettings } from '../../src/mesh/settings.ts'
import { newCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const answered: Outcome = {
  kind: 'answered',
  result: { text: '{}', value: {}, status: 200 },
  verdict: 'correct',
}

const named = (name: string, more: object = {}) =>
  schema.parse({ name, arms: { control: 'default', treatment: 'cautious' }, minimumUnits: 20, ...more })

function inWords(event: ExperimentEvent): string {
  switch (event.type) {
    case 'started':
      return `${event.name} started`
    case 'waits':
      return `${event.name} waits for ${event.for}`
    case 'ended':
      return `${event.name} ended: ${event.reason}`
    case 'failed':
      return `failed: ${event.why}`
  }
}

/** Experiments over servers `a` and `b`; `put` applies a config. */
function stage() {
  const clock = new ManualClock()
  const told: string[] = []
  const ended: EndedRun[] = []
  const forgotten: string[] = []
  let config: ExperimentConfig
  let isBroken = false
  let assign: ReturnType<Experiments['assignIn']>
  const experiments: Experiments = new Experiments({
    clock,
    quiet: () => 1_000,
    refresh() {
      if (isBroken) throw new Error('broken')
      put(config)
    },
    forget: (arms) => forgotten.push(...arms),
    emit(event) {
      told.push(inWords(event))
      if (event.type === 'ended') ended.push(event.run)
    },
  })
  function put(next: ExperimentConfig): void {
    config = next
    experiments.armsIn(next)
    assign = experiments.assignIn(next)
    experiments.follow(next)
  }
  return {
    clock,
    told,
    ended,
    forgotten,
    experiments,
    put: (list: readonly ReturnType<typeof named>[], cautious: PolicySettings = {}) =>
      put({
        experiments: list,
        policies: { defaults: {}, overrides: [], sets: { cautious } },
        mcpServers: { a: {}, b: {} },
      }),
    putServers: (list: readonly ReturnType<typeof named>[], servers: readonly string[]) =>
      put({
        experiments: list,
        policies: { defaults: {}, overrides: [], sets: { cautious: {} } },
        mcpServers: Object.fromEntries(servers.map((server) => [server, {}])),
      }),
    arms: () => Object.keys(experiments.armsIn(config)),
    shares: () => Object.entries(experiments.armsIn(config)).map(([arm, { share }]) => [arm, share]),
    begin,
    failRefresh: () => void (isBroken = true),
    /** Plays a whole call of a task at server `a`. Returns its arm. */
    call(task: string, outcome: Outcome = answered): string {
      const { arm, end } = begin(task)
      end(outcome)
      return arm
    },
  }

  function begin(task: string, tenant = 'test') {
    const call = newCall({
      method: 'tools/call',
      server: 'a',
      tenant,
      params: { name: 't', _meta: { 'dev.breakwater/intent': task } },
    })
    assign?.(call)
    return {
      arm: call.record.arm,
      end: (outcome: Outcome = answered) => experiments.end(call.record, outcome),
    }
  }
}

const rejected: Outcome = {
  kind: 'failed',
  error: { reason: 'internal', message: '', retryable: false, retryAfterMs: undefined, sent: true } as never,
}

test('an active experiment runs from its config on, and an inactive experiment from its start', () => {
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

test('experiments that would take the same calls run one at a time', () => {
  const { put, experiments, arms } = stage()
  put([named('one'), named('two', { active: false })])
  assert.deepEqual(experiments.start('two'), {
    ok: false,
    why: 'experiment "one" already runs at a server of this experiment: only experiments that a config starts together share servers',
  })
  experiments.stop('one')
  assert.deepEqual(experiments.start('two'), { ok: true })
  // An experiment that becomes active waits for the running experiment.
  put([named('one', { salt: 'new' }), named('two', { active: false })])
  assert.deepEqual(arms(), ['two/control', 'two/treatment'])
})

test('a reload with the same settings changes nothing, and a reload with others begins a new run', async () => {
  const { put, told, experiments, clock } = stage()
  put([named('one')])
  const { run } = experiments.get('one')!
  put([named('one')])
  assert.equal(experiments.get('one')?.run, run)
  put([named('one', { minimumEffect: 0.1 })])
  assert.notEqual(run?.end, undefined)
  await clock.advance(0)
  assert.equal(experiments.get('one')?.run?.end, undefined)
  put([named('one', { minimumEffect: 0.1, active: false })])
  put([])
  assert.deepEqual(told, [
    'one started',
    'one ended: its settings changed',
    'one started',
    'one ended: "active" is false now',
  ])
  assert.deepEqual(experiments.runs(), [])
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
  put([named('one', { minimumUnits: 200 })])
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

test('an experiment ends after its maximum duration, invalid with too few units', async () => {
  const { put, told, clock, experiments, call } = stage()
  put([named('one', { maxDuration: '10s' })])
  call('only one')
  await clock.advance(11_000)
  assert.deepEqual(told, ['one started', 'one ended: its maximum duration was over'])
  assert.equal(experiments.get('one')?.run?.judgement.verdict.result, 'invalid')
  assert.equal(clock.pending, 0)
})

test('a task counts after its end: after a quiet time, or after a report', async () => {
  const { put, call, clock, experiments } = stage()
  const units = () => {
    const { control = 0, treatment = 0 } = experiments.get('one')!.run!.judgement.units
    return control + treatment
  }
  put([named('one')])
  const arm = call('reported')
  await clock.advance(1)
  call('quiet')
  assert.equal(units(), 0)
  experiments.report({ source: 'meta', tenant: 'test', id: 'reported', arm }, 'succeeded')
  const reported = units()
  await clock.advance(1_000)
  assert.deepEqual([reported, units()], [1, 2])
})

test('a task that is over waits for those that began before it, for five minutes at most', async () => {
  const { put, call, begin, clock, experiments } = stage()
  const units = () => Object.values(experiments.get('one')!.run!.judgement.units).reduce((a, b) => a + b)
  put([named('one')])
  call('first')
  await clock.advance(1)
  begin('hangs')
  await clock.advance(1)
  call('later')
  await clock.advance(299_000)
  assert.equal(units(), 1)
  await clock.advance(1_000)
  // By then the hanging call counts too, as a failed call.
  assert.equal(units(), 3)
})

test('an arm whose tasks fail late does not seem better than one whose tasks fail at once', async () => {
  const { put, begin, clock, experiments, told } = stage()
  put([named('one', { minimumUnits: 20, maxDuration: '1h' })])
  const late: { readonly at: number; readonly end: (outcome: Outcome) => void }[] = []
  for (let task = 0; task < 600; task++) {
    await clock.advance(100)
    while (late[0] !== undefined && late[0].at <= clock.now()) late.shift()!.end(rejected)
    const { arm, end } = begin(`task ${task}`)
    if (task % 7 !== 0) end()
    else if (arm === 'one/control') end(rejected)
    else late.push({ at: clock.now() + 30_000, end })
    assert.notEqual(experiments.get('one')?.run?.judgement.verdict.result, 'better')
  }
  assert.deepEqual(told, ['one started'])
  for (const { end } of late) end(rejected)
  await clock.advance(3_000)
  const { verdict, units } = experiments.get('one')!.run!.judgement
  assert.equal(units.control! + units.treatment!, 600)
  assert.ok(Math.abs(verdict.difference) < 0.06, verdict.sentence)
})

test('a run begins with nothing of the one before it, and not before the calls of that one are over', () => {
  const { put, begin, experiments, forgotten } = stage()
  put([named('one')])
  assert.ok(forgotten.includes('one/control') && forgotten.includes('one/treatment'))
  const underWay = begin('task')
  experiments.stop('one')
  const before = forgotten.length
  assert.deepEqual(experiments.start('one'), {
    ok: false,
    why: 'calls of an earlier run are still under way (1): try again when all have ended',
  })
  underWay.end()
  assert.deepEqual(experiments.start('one'), { ok: true })
  assert.ok(forgotten.length > before)
  const { samples } = experiments.get('one')!.run!
  assert.deepEqual([samples.all().length, samples.assigned], [0, 0])
})

test('a run forgets the policy state of its arms before building anew, and never the state of running arms', () => {
  const { put, experiments, forgotten, arms } = stage()
  put([named('one', { match: { server: 'a' } }), named('two', { active: false, match: { server: 'b' } })])
  forgotten.length = 0
  arms()
  experiments.start('two')
  assert.equal(
    forgotten.some((arm) => arm.startsWith('one/')),
    false,
  )
  assert.ok(forgotten.includes('two/control'))
})

test('units that hang do not hide the harm that an arm does', async () => {
  const { put, begin, call, clock, told } = stage()
  put([named('one', { minimumUnits: 100 })])
  for (const task of ['first', 'second', 'third', 'fourth']) begin(task)
  await clock.advance(1)
  for (let task = 0; task < 400; task++) {
    const arm = call(`task ${task}`)
    if (arm === 'one/treatment') call(`task ${task}`, rejected)
  }
  await clock.advance(3_000)
  assert.deepEqual(told, ['one started', 'one ended: an arm did harm'])
})

test('a run stopped while units hang reports conclusions only if sure for any end of the units', () => {
  for (const open of [4, 200]) {
    const { put, begin, call, experiments } = stage()
    put([named('one', { minimumUnits: 100 })])
    for (let task = 0; task < open; task++) begin(`hangs ${task}`)
    for (let task = 0; task < 400; task++) {
      const arm = call(`task ${task}`)
      if (arm === 'one/control' && task % 3 === 0) call(`task ${task}`, rejected)
    }
    experiments.stop('one')
    const { judgement, samples } = experiments.get('one')!.run!
    const { verdict, units } = judgement
    assert.equal(verdict.result, open === 4 ? 'better' : 'invalid', verdict.sentence)
    if (open !== 4) continue
    assert.equal(verdict.assumed, 4)
    assert.equal(
      Object.values(units).reduce((sum, count) => sum + count, 0),
      400,
    )
    assert.equal(samples.all().filter(({ isJudged }) => isJudged).length, 400)
    assert.match(
      verdict.sentence,
      /^cautious wins, however the 4 open tasks end: at least [\d.]+ points more tasks go without a failed call \(.*404 tasks\), if all in cautious fail and all in default succeed; measured over the 400 finished tasks: [\d.]+ points more tasks go without a failed call$/,
    )
  }
})

test('a call that takes more than five minutes makes its arm no worse before anybody knows how the call ends', async () => {
  for (const failed of [false, true]) {
    const { put, begin, clock, experiments, told } = stage()
    put([named('one', { minimumUnits: 100 })])
    const open = Array.from({ length: 400 }, (_, task) => begin(`task ${task}`))
    const late = open.filter(({ arm }, task) => arm === 'one/treatment' && task % 5 === 0)
    for (const one of open) if (!late.includes(one)) one.end()
    await clock.advance(302_000)
    const { result, harm, sentence } = experiments.get('one')!.run!.judgement.verdict
    assert.deepEqual([result, harm], ['inconclusive', false])
    assert.equal(
      sentence,
      `not decided yet: the verdict depends on ${late.length} unfinished tasks, each with a call under way for more than 5 minutes`,
    )
    for (const { end } of late) end(failed ? rejected : answered)
    await clock.advance(3_000)
    const { verdict } = experiments.get('one')!.run!.judgement
    assert.equal(verdict.result === 'worse', failed, verdict.sentence)
    assert.equal(told.length, failed ? 2 : 1)
  }
})

test('a call that hangs says nothing of how long calls take: a control that hangs makes no treatment slower', async () => {
  const guardrails = [{ metric: 'mean_ms', margin: 10 }] as const
  for (const more of [{ guardrails }, { guardrails, metric: 'mean_ms', minimumEffect: 1 }]) {
    const { put, begin, clock, experiments, told } = stage()
    put([named('one', { ...more, minimumUnits: 30 })])
    const open = Array.from({ length: 400 }, (_, task) => begin(`task ${task}`))
    // The treatment is six times as fast; of the control, all but 10 calls hang.
    await clock.advance(100)
    const ofControl = open.filter(({ arm }) => arm === 'one/control')
    for (const { arm, end } of open) if (arm === 'one/treatment') end()
    await clock.advance(500)
    for (const { end } of ofControl.slice(0, 10)) end()
    await clock.advance(2_000)
    const { result, sentence } = experiments.get('one')!.run!.judgement.verdict
    assert.notEqual(result, 'worse', sentence)
    assert.deepEqual(told, ['one started'])
    // After five minutes hanging calls count as they are.
    await clock.advance(300_000)
    const { judgement } = experiments.get('one')!.run!
    assert.doesNotMatch(judgement.verdict.sentence, /longer/)
  }
})

test('beyond the room for units calls are counted, and stay in their arms; a tenant gets half of it', async () => {
  const { put, begin, experiments, clock } = stage()
  put([named('one')])
  for (const tenant of ['many', 'others', 'late'])
    for (let task = 0; task < 25_010; task++) begin(`task ${task}`, tenant).end()
  const { samples } = experiments.get('one')!.run!
  assert.deepEqual([samples.all().length, samples.dropped], [50_000, 25_030])
  assert.equal(samples.all().filter(({ tenant }) => tenant === 'others').length, 25_000)
  assert.notEqual(begin('one more').arm, '')
  put([named('one', { salt: 'again' })])
  await clock.advance(0)
  assert.equal(experiments.get('one')?.run?.samples.all().length, 0)
  begin('task 0', 'many').end()
  assert.equal(experiments.get('one')?.run?.samples.all().length, 1)
})

test('samples of an ended run leave room for the next run, of the same tenant too', () => {
  const { put, begin, experiments } = stage()
  put([named('one', { active: false }), named('two', { active: false, match: { tool: 't' } })])
  experiments.start('one')
  for (let task = 0; task < 25_010; task++) begin(`task ${task}`).end()
  experiments.stop('one')
  experiments.start('two')
  for (let task = 0; task < 24_000; task++) begin(`task ${task}`).end()
  const units = () => ['one', 'two'].map((name) => experiments.get(name)!.run!.samples.all().length)
  assert.deepEqual(units(), [25_000, 24_000])
  for (let task = 0; task < 2_000; task++) begin(`task ${task}`, 'another').end()
  assert.deepEqual(units(), [0, 26_000])
})

test('configs in quick succession do not postpone a look', async () => {
  const { put, told, clock } = stage()
  for (let at = 0; at < 30; at++) {
    put([named('one', { maxDuration: '10s' })])
    await clock.advance(500)
  }
  assert.deepEqual(told, ['one started', 'one ended: its maximum duration was over'])
})

test('experiments at one server begin together and share the server, with constant shares during a run', () => {
  const { put, experiments, shares } = stage()
  const [one, two] = ['t', 'u'].map((tool) => named(`of_${tool}`, { match: { server: 'a', tool } }))
  put([one!, two!])
  const both = shares()
  assert.deepEqual(
    both.map(([, share]) => share),
    [0.125, 0.125, 0.125, 0.125],
  )
  experiments.stop('of_t')
  assert.deepEqual(shares(), both.slice(2))
  assert.match(
    (experiments.start('of_t') as { why: string }).why,
    /"of_u" already runs at a server of this experiment/,
  )
  experiments.stop('of_u')
  assert.deepEqual(experiments.start('of_t'), { ok: true })
  assert.deepEqual(
    shares().map(([, share]) => share),
    [0.25, 0.25],
  )
  put([one!, two!, named('new', { match: { server: 'a', tool: 'v' } })])
  assert.equal(shares().length, 2)
})

test('an experiment ends when a new server adds an experiment that already shares the server', () => {
  const { putServers, told, shares } = stage()
  const wide = ['a*', '*z', '*m*'].map((server, at) =>
    named(`of_${at}`, { match: { server, tool: ['read', 'look', 'other'][at]! } }),
  )
  putServers(wide, ['a', 'z', 'm'])
  assert.deepEqual(
    shares().map(([, share]) => share),
    [0.25, 0.25, 0.25, 0.25, 0.25, 0.25],
  )
  putServers(wide, ['a', 'z', 'm', 'amz'])
  assert.deepEqual(told.slice(3), [
    'of_1 ended: a new server also matches "of_0"',
    'of_2 ended: a new server also matches "of_0"',
  ])
})

test('an active experiment that has to wait is logged once, and begins after the other has ended', () => {
  const { put, told, experiments, arms } = stage()
  put([named('two', { active: false })])
  experiments.start('two')
  const both = [named('one'), named('two', { active: false })]
  put(both)
  put(both)
  assert.equal(experiments.waitsFor('one'), 'two')
  experiments.stop('two')
  assert.deepEqual(arms(), ['one/control', 'one/treatment'])
  assert.equal(experiments.waitsFor('one'), undefined)
  assert.deepEqual(told, [
    'two started',
    'one waits for two',
    'two ended: it was stopped by hand',
    'one started',
  ])
})

test('a config that no longer compiles at the end of a run is logged, and ends nothing else', async () => {
  const { put, told, call, clock, failRefresh } = stage()
  put([named('one', { maxDuration: '2s' })])
  call('task')
  failRefresh()
  await clock.advance(3_000)
  assert.deepEqual(told, ['one started', 'one ended: its maximum duration was over', 'failed: broken'])
})

test('a run of very many durations is judged in the background at its end: no call waits, and the verdict is the same each time', async () => {
  const verdictOf = async () => {
    const { put, experiments, told, clock, begin } = stage()
    put([named('one', { metric: 'p95', minimumEffect: 5, minimumUnits: 100 })])
    for (let task = 0; task < 4_000; task++)
      for (let n = 0; n < 4; n++) {
        const { end } = begin(`task ${task}`)
        end()
      }
    await clock.advance(10_000)
    const before = process.cpuUsage()
    assert.deepEqual(experiments.stop('one'), { ok: true })
    const { user, system } = process.cpuUsage(before)
    const tookMs = (user + system) / 1_000
    assert.deepEqual(told, ['one started'], 'the end is logged when the run is judged')
    await until('the run is judged', () => told.length === 2)
    assert.equal(told[1], 'one ended: it was stopped by hand')
    return { tookMs, verdict: experiments.get('one')!.run!.judgement.verdict }
  }
  const first = await verdictOf()
  assert.ok(first.tookMs < 200, `the stop took ${first.tookMs} ms of CPU`)
  assert.ok(Number.isFinite(first.verdict.low) && Number.isFinite(first.verdict.high))
  assert.deepEqual((await verdictOf()).verdict, first.verdict)
})

test('an experiment slow to judge is judged once a look, for any number of requests', async () => {
  const { put, experiments, clock, call } = stage()
  put([named('one')])
  call('first')
  await clock.advance(5_000)
  // Each judgement takes 60 ms of this clock: every read of the clock advances the time.
  const now = clock.now.bind(clock)
  let asked = 0
  clock.now = () => now() + 60 * asked++
  const judged = () => {
    const before = experiments.get('one')!.run!.judgement
    return experiments.get('one')!.run!.judgement !== before
  }
  assert.equal(judged(), false)
})

test('an ended run tells the figures of its arms, and whether somebody stopped the run', async () => {
  const { put, experiments, ended, begin, clock } = stage()
  put([named('one')])
  for (let n = 0; n < 40; n++) {
    const { end } = begin(`task ${n}`)
    await clock.advance(10)
    end(n % 4 === 0 ? rejected : answered)
  }
  const open = begin('open')
  experiments.stop('one')
  open.end()
  const [run] = ended
  assert.ok(run !== undefined)
  assert.deepEqual([run.isStopped, run.ranMs], [true, 400])
  const sums = Object.values(run.arms).map(({ calls, failed, underWay, cells }) => {
    assert.equal(
      cells.reduce((sum, [, count]) => sum + count, 0),
      calls,
    )
    return [calls, failed, underWay]
  })
  const [[c, cf, cu], [t, tf, tu]] = sums as [[number, number, number], [number, number, number]]
  assert.deepEqual([c + t, cf + tf, cu + tu], [40, 10, 1])
})

test('a run over its maximum duration is not stopped, and keeps its figures when the config drops the run', async () => {
  const { put, ended, call, clock } = stage()
  put([named('one', { maxDuration: '2s' }), named('two', { match: { server: 'b' } })])
  for (let n = 0; n < 30; n++) call(`task ${n}`)
  await clock.advance(3_000)
  put([])
  assert.deepEqual(
    ended.map(({ experiment, isStopped }) => [experiment.name, isStopped]),
    [
      ['one', false],
      ['two', true],
    ],
  )
  const calls = Object.values(ended[0]!.arms).reduce((sum, arm) => sum + arm.calls, 0)
  assert.equal(calls, 30)
})
