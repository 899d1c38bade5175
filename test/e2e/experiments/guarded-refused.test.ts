import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { FlakyServer } from '../support/flaky.ts'
import { cleanUp, Gateway, type Json, newFolder } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { ask, comesTo, journalOf, partsWith, shown, specOf, started, traffic } from './scene.ts'
import { main } from '../../support/main.ts'

afterEach(cleanUp)

async function refusals(gateway: Gateway, spec: Json, more: Json = {}): Promise<string> {
  const { status, body } = await ask(gateway, spec, more)
  assert.ok(status === 409 || status === 400, `${status} ${JSON.stringify(body)}`)
  assert.equal(await gateway.metric('breakwater_chaos_armed'), 0, 'nothing was injected')
  return (body.findings ?? []).map(({ path, message }) => `${path} ${message}`.trim()).join('\n')
}

test('the gateway refuses an invalid run before injecting anything, and a plan gives the reason without injecting', async () => {
  const { gateway } = await started({
    experiments: [{ name: 'canary', active: false, arms: { control: 'default', treatment: 'plain' } }],
  })
  const { gate: _, ...ungated } = specOf()
  assert.match(await refusals(gateway, ungated), /^spec\.gate missing/)
  const unnumbered = specOf({ gate: { rollbackOn: [{ metric: 'p95', above: 'high' }] } })
  assert.match(await refusals(gateway, unnumbered), /rollbackOn\[0\]\.above expected a duration/)
  const stages = [
    { share: 0.5, duration: '1s' },
    { share: 0.1, duration: '1s' },
  ]
  assert.match(await refusals(gateway, specOf({ stages })), /stages must not shrink/)
  assert.match(
    await refusals(gateway, specOf({ targets: { server: 'nobody' } })),
    /"nobody" matches no server; there are flaky/,
  )
  assert.match(
    await refusals(gateway, specOf({ targets: { server: 'flaky', tool: 'no_such' } })),
    /"no_such" matches no tool of the targets/,
  )
  assert.match(
    await refusals(gateway, specOf({ targets: { server: 'flaky', environment: 'qa' } })),
    /targets\.environment is "qa", but this gateway's environment is "staging"/,
  )
  assert.match(
    await refusals(gateway, specOf({ arms: { treatment: 'none' } })),
    /there is no policy set "none"/,
  )
  assert.match(
    await refusals(gateway, specOf({ name: 'canary' })),
    /the config already has a comparison named "canary"/,
  )
  const killing = specOf({ faults: [{ name: 'dead', type: 'proc.kill', rate: 1 }] })
  assert.match(await refusals(gateway, killing), /faults\[0\]\.type: proc\.kill cannot work with flaky/)
  const aside = specOf({
    faults: [{ name: 'aside', type: 'rpc.error', rate: 1, match: { tool: 'write*' } }],
  })
  assert.match(await refusals(gateway, aside), /^faults: no tool of the targets can be hit: "match"/)
  const listing = specOf({
    faults: [
      { name: 'broken', type: 'rpc.error', rate: 1 },
      { name: 'listing', type: 'result.partial', rate: 1, match: { method: 'tools/lost' } },
    ],
  })
  assert.match(await refusals(gateway, listing), /^faults\[1\]\.match\.method: result\.partial can hit /)
  const long = specOf({
    stages: [
      { share: 0.5, duration: '1h' },
      { share: 0.5, duration: '1h' },
    ],
  })
  assert.match(await refusals(gateway, long), /the stages take 2h, but chaos\.maxTtl limits faults to 1h/)
  assert.match(
    await refusals(gateway, specOf(), { firstStage: 2 }),
    /skipping stages needs an approver: give --approved-by NAME/,
  )

  await gateway.post('/admin/experiments/canary/start')
  assert.match(await refusals(gateway, specOf()), /experiment "canary" runs on these servers/)
  await gateway.post('/admin/experiments/canary/stop')
  const inject = {
    target: 'flaky',
    config: { type: 'conn.latency', rate: 0, distribution: { kind: 'fixed', delay: '1ms' } },
  }
  const { body } = await gateway.post<{ faultId: string }>('/chaos/inject', inject)
  const plan = await gateway.post<{ refusals: string[]; targets: Json }>('/admin/experiments/plan', {
    spec: specOf(),
  })
  assert.match(plan.body.refusals.join(), /^fault "fault-\d+" is armed at these servers$/)
  await gateway.post('/chaos/clear', { faultId: body.faultId })
  const free = await gateway.post<{ refusals: string[]; targets: { servers: Json[] } }>(
    '/admin/experiments/plan',
    {
      spec: specOf(),
    },
  )
  assert.deepEqual(free.body.refusals, [])
  assert.deepEqual(free.body.targets.servers, [{ name: 'flaky', tools: ['read'], hit: ['read'] }])
  assert.equal((await gateway.admin('/admin/experiments/drill')).status, 404, 'a plan leaves nothing behind')
})

test('a server with failing probes has no steady state about probes, though it is up', async () => {
  const server = await FlakyServer.start()
  const folder = await newFolder()
  const health = { every: '1s', tool: { name: 'read', expect: 'what it never says' } }
  const servers = { flaky: { url: server.url, trusted: true, health } }
  const gateway = await Gateway.start(partsWith(folder, server.url, { servers }), { folder })
  await gateway.waitFor('up', 'flaky')
  const agents = await traffic(gateway)
  await ask(gateway, specOf({ hypothesis: { steadyState: ['status = up', 'probe_failures = 0'] } }))
  await comesTo(gateway, 'over')
  await agents.stop()
  const { state, reason } = await shown(gateway)
  assert.equal(state, 'failed', reason)
  assert.match(reason, /^the steady state does not hold: probe_failures = 0 \(found [1-9]\d*\); nothing/)
})

test('a run blocks other runs and comparisons, and ends when the config changes', async () => {
  const { gateway, parts } = await started()
  const agents = await traffic(gateway)
  const spec = specOf({
    gate: { rollbackOn: [{ metric: 'p95', above: '50s' }], over: '1s', minimum: 4 },
    stages: [{ share: '25%', duration: '10m' }],
  })
  assert.equal((await ask(gateway, spec)).status, 202)
  await comesTo(gateway, 'stage')
  const second = await ask(gateway, { ...spec, name: 'other' })
  assert.match(JSON.stringify(second.body.findings), /experiment \\"drill\\" is running: only one runs/)
  await gateway.reconfigure({
    ...parts,
    policies: { sets: { plain: { retry: false, breaker: false, bulkhead: { concurrent: 9 } } } },
  })
  await comesTo(gateway, 'over')
  const run = await shown(gateway)
  assert.equal(run.state, 'failed')
  assert.match(run.reason, /^a config change affects the run/)
  assert.deepEqual([run.rollback?.armed, run.rollback?.arms], [[], []])
  await agents.stop()
})

test('without a state folder, or with one that cannot be written, nothing is run', async () => {
  const server = await FlakyServer.start()
  const folder = await newFolder()
  const none = await Gateway.start(partsWith(folder, server.url, { gateway: { environment: 'staging' } }))
  await none.waitFor('up', 'flaky')
  assert.match(
    await refusals(none, specOf()),
    /the run could not be written to the journal: gateway\.stateDir is not set/,
  )
  // A file in place of the runs' folder.
  await mkdir(join(folder, 'state'))
  await writeFile(join(folder, 'state', 'experiments'), '')
  const blocked = await Gateway.start(partsWith(folder, server.url), { folder })
  await blocked.waitFor('up', 'flaky')
  assert.match(await refusals(blocked, specOf()), /the run could not be written to the journal: EEXIST/)
})

test('in production, and with chaos off, nothing is run', async () => {
  const server = await FlakyServer.start()
  const folder = await newFolder()
  const stateDir = join(folder, 'state')
  const parts = partsWith(folder, server.url, { gateway: { environment: 'production', stateDir }, chaos: {} })
  const production = await Gateway.start(parts)
  await production.waitFor('up', 'flaky')
  assert.match(
    await refusals(production, specOf({ targets: { server: 'flaky' } })),
    /gateway\.environment is "production"/,
  )
  const other = join(folder, 'other')
  const off = await Gateway.start(
    partsWith(folder, server.url, { gateway: { environment: 'staging', stateDir: other }, chaos: {} }),
  )
  await off.waitFor('up', 'flaky')
  assert.match(await refusals(off, specOf()), /refused: chaos\.enabled is false/)
})

test('a run that needs approval waits for a name, which the journal keeps', async () => {
  const { gateway, folder } = await started()
  const agents = await traffic(gateway)
  const spec = specOf({
    approval: 'required',
    faults: [{ name: 'slow', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '1ms' } }],
  })
  assert.equal((await ask(gateway, spec)).body.state, 'pending_approval')
  assert.equal((await gateway.post('/admin/experiments/drill/approve', {})).status, 400)
  const cli = new Program(
    [main, 'experiment', 'approve', 'drill', '--by', 'boss', '--control', gateway.control],
    {
      env: { BREAKWATER_TOKEN: gateway.token },
    },
  )
  assert.equal((await cli.ended).code, 0, cli.lines.join('\n'))
  await comesTo(gateway, 'over')
  const [run] = await journalOf(folder)
  assert.deepEqual(
    [run?.state, run?.actor, run?.approver],
    ['completed', 'tester', 'boss'],
    JSON.stringify(run?.reason),
  )
  const skipped = await ask(gateway, spec, { firstStage: 2, approvedBy: 'boss' })
  assert.equal(skipped.status, 202)
  await comesTo(gateway, 'over')
  const [, second] = await journalOf(folder, 2)
  assert.deepEqual([(second?.stages as Json[]).length, second?.firstStage], [1, 1])
  await agents.stop()
})

test("the gateway streams a run's progress as events, to the end", async () => {
  const { gateway } = await started()
  const agents = await traffic(gateway)
  await ask(gateway, specOf())
  const response = await fetch(`${gateway.control}/admin/experiments/drill/events`)
  assert.equal(response.headers.get('content-type'), 'text/event-stream')
  const text = await response.text()
  const phases = [...text.matchAll(/^event: (\w+)$/gm)].map(([, phase]) => phase)
  assert.deepEqual([...new Set(phases)], ['baseline', 'stage', 'recovery', 'over'])
  const last = JSON.parse(text.trim().split('\n').at(-1)!.slice('data: '.length)) as Json
  assert.equal(last.state, 'aborted', String(last.reason))
  await agents.stop()
})
