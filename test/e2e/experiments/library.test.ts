import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { parse } from 'yaml'
import { readGameDay } from '../../../src/gateway/gameday-file.ts'
import { readExperiment } from '../../../src/gateway/guarded/file.ts'
import { cleanUp, Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { comesTo } from './scene.ts'

const folder = 'config/experiments'
const files = (await readdir(folder)).filter((name) => name.endsWith('.yaml'))

let gateway: Gateway

before(async () => {
  const drills = parse(await readFile('config/drills.yaml', 'utf8')) as Json & {
    gateway: Json
    mcpServers: GatewayParts['servers']
  }
  const state = await newFolder()
  gateway = await Gateway.start({
    servers: drills.mcpServers,
    gateway: { ...drills.gateway, stateDir: join(state, 'state') },
    policies: drills.policies as Json,
    chaos: drills.chaos as Json,
  })
  await gateway.waitFor('up', 'everything', 'memory', 'filesystem')
})

after(cleanUp)

async function specOf(file: string): Promise<Json> {
  const read = await readExperiment(join(folder, file))
  assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
  return read.written as Json
}

test('the library has its promised drills', () => {
  assert.deepEqual(files, [
    'drift.yaml',
    'expired-credential.yaml',
    'latency.yaml',
    'pool-cut.yaml',
    'pool-drill-bounded.yaml',
    'pool-drill-unbounded.yaml',
    'pool-sessions.yaml',
    'process-kill.yaml',
    'rate-limit-storm.yaml',
    'upstream-blocked.yaml',
  ])
})

for (const file of files)
  test(`${file} has the name of its file, and may be run on the servers of config/drills.yaml`, async () => {
    const spec = await specOf(file)
    assert.equal(`${String(spec.name)}.yaml`, file)
    const { status, body } = await gateway.post<{
      refusals: string[]
      targets: { servers: { hit: string[] }[] }
    }>('/admin/experiments/plan', { spec })
    assert.equal(status, 200, JSON.stringify(body))
    assert.deepEqual(body.refusals, [])
    assert.ok(
      body.targets.servers.some(({ hit }) => hit.length > 0),
      'some tool is hit',
    )
  })

for (const file of ['first-look.yaml', 'outage.yaml'])
  test(`the GameDay ${file} may be run on the servers of the quickstart`, async () => {
    const read = await readGameDay(join('config/gamedays', file))
    assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
    const { status, body } = await gateway.post<{
      refusals: string[]
      experiments: { refusals: string[]; waitsBecause?: string }[]
    }>('/admin/gamedays/plan', { plan: read.written })
    assert.equal(status, 200, JSON.stringify(body))
    const { refusals, experiments } = body
    assert.deepEqual(
      [refusals, ...experiments.map((one) => [one.refusals, one.waitsBecause])],
      [[], ...experiments.map(() => [[], undefined])],
    )
  })

test('a GameDay plan names each server outside of its scope', async () => {
  const read = await readGameDay('config/gamedays/first-look.yaml')
  assert.ok(read.ok)
  const plan = { ...(read.written as Json), scope: { servers: ['memory'] } }
  const { body } = await gateway.post<{ experiments: { refusals: string[] }[] }>('/admin/gamedays/plan', {
    plan,
  })
  assert.deepEqual(
    body.experiments.map(({ refusals }) => refusals),
    [[], ['the server everything is outside of the scope of the GameDay']],
  )
})

/** Returns the spec with stages of a few seconds. */
const short = (spec: Json, stages: readonly Json[]): Json => ({
  ...spec,
  baseline: { duration: '3s' },
  stages,
  estimate: {},
})

/** Runs the drill's last stage, with the hiccup two seconds after its start. */
async function drill(name: string) {
  const spec = short(await specOf(`${name}.yaml`), [{ share: '50%', duration: '25s' }])
  const faults = (spec.faults as Json[]).map((fault) =>
    fault.name === 'hiccup' ? { ...fault, when: { window: { from: '2s', to: '5s' } } } : fault,
  )
  assert.equal(
    (await gateway.post('/admin/experiments', { spec: { ...spec, faults }, approvedBy: 'boss' })).status,
    202,
  )
  await comesTo(gateway, 'over', name)
  const { body } = await gateway.admin(`/admin/experiments/${name}/report`)
  assert.deepEqual([(body.rollback as Json).armed, (body.rollback as Json).arms], [[], []])
  assert.ok((body.recovery as { steadyAfterMs?: number }).steadyAfterMs !== undefined, 'no recovery time')
  return body
}

test('the gate finds the outage that unbounded retries keep up after a hiccup, and the control does not notice', async () => {
  const run = await drill('pool-drill-unbounded')
  assert.equal(run.state, 'aborted', JSON.stringify(run.decisions))
  assert.match(String(run.reason), /^error_ratio of treatment was \d/)
  const [stage] = run.stages as { control: { failed: number } }[]
  assert.equal(stage!.control.failed, 0)
})

test('with bounded retries the same pool comes back from the same hiccup by itself', async () => {
  const run = await drill('pool-drill-bounded')
  assert.notEqual(run.state, 'aborted', JSON.stringify(run.decisions))
  const [stage] = run.stages as { treatment: { failed: number; calls: number } }[]
  assert.ok(stage!.treatment.failed > 0, 'the hiccup made calls fail')
})

test('a killed process is started again, and the run says how long its server took', async () => {
  // On a busy machine a process takes seconds to start, and calls of the treatment wait.
  const spec = short(await specOf('process-kill.yaml'), [{ share: '50%', duration: '12s' }])
  const killing = {
    ...spec,
    faults: [{ name: 'kill', type: 'proc.kill', rate: 1, maxInjections: 1, signal: 'KILL' }],
    // The spec's own rules take longer than this short stage.
    gate: { rollbackOn: [{ metric: 'error_ratio', above: '99%' }] },
  }
  assert.equal((await gateway.post('/admin/experiments', { spec: killing, approvedBy: 'boss' })).status, 202)
  await comesTo(gateway, 'over', 'process-kill')
  const run = (await gateway.admin('/admin/experiments/process-kill/report')).body
  assert.ok(['completed', 'deviated'].includes(String(run.state)), JSON.stringify(run.decisions))
  assert.deepEqual(
    (run.faults as { injected: number }[]).map(({ injected }) => injected),
    [1],
  )
  assert.ok(
    (run.recovery as { steadyAfterMs?: number }).steadyAfterMs !== undefined,
    JSON.stringify(run.recovery),
  )
})
