import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { ask, comesTo, journalOf, shown, specOf, started, traffic } from './scene.ts'
import { main } from '../../support/main.ts'

afterEach(cleanUp)

test('a breached gate rolls the run back within 2 s though whoever began it is dead, and nothing stays armed', async () => {
  const { gateway, folder } = await started()
  const agents = await traffic(gateway)
  const file = join(folder, 'drill.json')
  await writeFile(file, JSON.stringify(specOf()))
  const cli = new Program([main, 'experiment', 'run', file, '--control', gateway.control], {
    env: { BREAKWATER_TOKEN: gateway.token },
  })
  await until(
    'the run has begun',
    async () => (await gateway.admin('/admin/experiments/drill')).status === 200,
  )
  await cli.kill()
  await comesTo(gateway, 'over')
  const run = (await gateway.admin('/admin/experiments/drill/report')).body
  assert.equal(run.state, 'aborted', JSON.stringify(run.decisions))
  assert.match(String(run.reason), /^error_ratio of treatment was 100% over \d+ calls, above 10%$/)
  const [stage] = run.stages as { beganAtMs: number; endedAtMs: number; treatment: { calls: number } }[]
  const rollback = run.rollback as { atMs: number; armed: string[]; arms: string[] }
  assert.deepEqual([rollback.armed, rollback.arms], [[], []])
  // The first four calls take a few milliseconds; half a second later the metric is measurable.
  assert.ok(rollback.atMs - stage!.beganAtMs < 2_500, JSON.stringify([stage, rollback]))
  const { failed } = agents.counts
  const before = agents.counts.calls
  await until('100 more calls', () => agents.counts.calls >= before + 100)
  assert.equal(agents.counts.failed, failed, 'no call fails after the rollback')
  assert.equal(await gateway.metric('breakwater_chaos_armed'), 0)
  await agents.stop()
  const [sealed] = await journalOf(folder)
  assert.deepEqual([sealed?.state, (sealed?.rollback as { armed: string[] }).armed], ['aborted', []])
})

test('a run whose hypothesis holds goes through all stages and is completed', async () => {
  const { gateway, folder } = await started()
  const agents = await traffic(gateway)
  const spec = specOf({
    faults: [
      { name: 'slow', type: 'conn.latency', rate: 0.5, distribution: { kind: 'fixed', delay: '5ms' } },
    ],
    estimate: { outcome: 'completed', recover: '5s', errorRatio: '0%' },
  })
  assert.equal((await ask(gateway, spec)).status, 202)
  await comesTo(gateway, 'over')
  await agents.stop()
  const run = (await gateway.admin('/admin/experiments/drill/report')).body
  assert.equal(run.state, 'completed', JSON.stringify(run.decisions))
  const stages = run.stages as { share: number; treatment: { calls: number }; control: { calls: number } }[]
  assert.deepEqual(
    stages.map(({ share }) => share),
    [0.25, 0.5],
  )
  for (const { share, treatment, control } of stages) {
    // Each call is a task, assigned at random; the number of tasks depends on the machine.
    const calls = treatment.calls + control.calls
    const deviation = Math.sqrt((share * (1 - share)) / calls)
    const got = treatment.calls / calls
    assert.ok(Math.abs(got - share) < 4 * deviation, `share ${got} instead of ${share} over ${calls} calls`)
  }
  assert.ok((run.faults as { injected: number }[])[0]!.injected > 0)
  assert.ok((run.recovery as { steadyAfterMs: number }).steadyAfterMs < 5_000)
  assert.deepEqual(
    (run.estimates as { isRight: boolean }[]).map(({ isRight }) => isRight),
    [true, true, true],
  )
  const list = (await gateway.admin<{ experiments: { kind: string; name: string }[] }>('/admin/experiments'))
    .body
  assert.deepEqual(
    list.experiments.map(({ kind, name }) => [kind, name]),
    [['guarded', 'drill']],
  )
  assert.equal((await journalOf(folder)).length, 1)
  const verified = new Program([main, 'experiment', 'verify', '--state', join(folder, 'state')])
  assert.equal((await verified.ended).code, 0)
  assert.match(verified.lines.join('\n'), /the journal is whole: 1 run\b/)
})

test('the kill switch ends a run as aborted, and so does an operator', async () => {
  const { gateway } = await started()
  const agents = await traffic(gateway)
  const spec = specOf({ gate: { rollbackOn: [{ metric: 'p95', above: '50s' }], over: '1s', minimum: 4 } })
  await ask(gateway, { ...spec, stages: [{ share: '25%', duration: '10m' }] })
  await comesTo(gateway, 'stage')
  await until('calls fail', () => agents.counts.failed > 3)
  await gateway.post('/admin/chaos/kill')
  await comesTo(gateway, 'over')
  const killed = await shown(gateway)
  assert.deepEqual([killed.state, killed.rollback?.armed], ['aborted', []])
  assert.match(killed.reason, /^the kill switch stopped it/)
  const { faults, stages } = (await gateway.admin('/admin/experiments/drill/report')).body as {
    faults: { injected: number }[]
    stages: { treatment: { failed: number } }[]
  }
  const [{ injected }, { failed }] = [faults[0]!, stages[0]!.treatment]
  assert.ok(failed > 0 && injected >= failed, `${injected} injected, ${failed} failed`)
  await gateway.post('/admin/chaos/unkill')
  await ask(gateway, { ...spec, stages: [{ share: '25%', duration: '10m' }] })
  await comesTo(gateway, 'stage')
  await gateway.post('/admin/experiments/drill/stop')
  await comesTo(gateway, 'over')
  assert.equal((await shown(gateway)).state, 'aborted')
  await agents.stop()
})
