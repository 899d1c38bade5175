import { noHits } from '../../src/experiments/guarded/record.ts'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  approve,
  entriesOf,
  install,
  insideSpec,
  opened,
  propose,
  runIn,
  type Scene,
  writer,
} from './scene.ts'

const start = ({ runs }: Scene, id: string, key = 'k') => runs.starts.start(writer, id, key)

async function refusedCode(scene: Scene, id: string): Promise<string> {
  const started = await start(scene, id)
  return started.ok ? 'it began' : started.code
}

test('an approval begins a run outside of every envelope', async () => {
  const scene = await opened()
  const proposal = await propose(scene.runs, 'a question')
  assert.equal(await refusedCode(scene, proposal.id), 'needs_approval')
  assert.equal((await approve(scene.runs, proposal)).ok, true)
  const { approver, proof } = runIn(await start(scene, proposal.id))
  assert.equal(approver, 'alice')
  assert.equal(proof?.envelope, undefined)
  assert.notEqual(proof?.keyId, undefined)
})

/** A proposal whose approval is over: it ends a minute after its signature. */
async function late(scene: Scene) {
  const proposal = await propose(scene.runs, 'a question')
  const expiresAt = new Date(scene.clock.wall() + 60_000).toISOString()
  assert.equal((await approve(scene.runs, proposal, { expiresAt })).ok, true)
  await scene.clock.advance(60_000)
  return proposal
}

test('a run whose approval is over begins inside an envelope that covers the run, and its record says so', async () => {
  const scene = await opened()
  await install(scene)
  const proposal = await late(scene)
  const { id, proof } = runIn(await start(scene, proposal.id))
  assert.deepEqual([proof?.envelope, proof?.keyId], ['env-test', undefined])
  const spent = (await entriesOf(scene)).find((entry) => entry.kind === 'spent')
  assert.deepEqual(spent && [spent.run, spent.envelope, spent.nonce], [id, 'env-test', undefined])
})

test('a run whose approval is used up begins inside an envelope', async () => {
  const scene = await opened()
  const nonce = 'A'.repeat(22)
  const [one, other] = [await propose(scene.runs, 'one'), await propose(scene.runs, 'other')]
  for (const proposal of [one, other]) assert.equal((await approve(scene.runs, proposal, { nonce })).ok, true)
  runIn(await start(scene, one.id))
  assert.equal(await refusedCode(scene, other.id), 'approval_used')
  await install(scene)
  assert.equal(runIn(await start(scene, other.id)).proof?.envelope, 'env-test')
})

test('a run whose approval is over needs an envelope that covers the run', async () => {
  const scene = await opened()
  await install(scene, { maxStage: '1s' })
  assert.equal(await refusedCode(scene, (await late(scene)).id), 'expired')
})

test('no envelope helps a proposal whose ground changed since the approval', async () => {
  const scene = await opened()
  await install(scene)
  const proposal = await late(scene)
  scene.rules.ground = 'two'
  assert.equal(await refusedCode(scene, proposal.id), 'plan_changed')
})

test('an approval of other hashes, over or not, is for another run', async () => {
  const scene = await opened()
  await install(scene)
  const { approvals } = scene.runs
  const proposal = await late(scene)
  const other = { ...proposal, planHash: 'f'.repeat(64) }
  const checked = approvals.check(proposal.approval!, proposal.id, other, 0)
  assert.equal(!checked.ok && checked.code, 'plan_changed')
  const same = approvals.check(proposal.approval!, proposal.id, proposal, 0)
  assert.equal(!same.ok && same.code, 'expired')
})

test('a run that fails to begin stays spent, and counts as uncompleted once', async () => {
  const scene = await opened()
  await install(scene)
  const proposal = await propose(scene.runs, 'a question')
  scene.rules.begins = () => Promise.resolve({ ok: false, refusals: ['the disk is full'] })
  assert.equal((await start(scene, proposal.id)).ok, false)
  const [state] = scene.runs.envelopes.list
  assert.deepEqual(state?.remaining, { runs: 19, today: 19, aborts: 4 })
  assert.equal(await refusedCode(scene, proposal.id), 'invalid')
  const other = await start(scene, proposal.id, 'another key')
  assert.equal(!other.ok && other.code, 'approval_used')
  assert.equal((await entriesOf(scene)).filter(({ kind }) => kind === 'over').length, 1)
})

test('an aborted run counts as uncompleted once', async () => {
  const scene = await opened()
  await install(scene)
  const { runs } = scene
  const run = runIn(await start(scene, (await propose(runs, 'a question')).id))
  runs.active.ended({ ...run, state: 'aborted' })
  runs.active.ended({ ...run, state: 'aborted' })
  assert.equal(runs.envelopes.list[0]?.remaining.aborts, 4)
  assert.equal((await entriesOf(scene)).filter(({ kind }) => kind === 'over').length, 1)
  assert.equal(runs.envelopes.list[0]?.remaining.aborts, 4)
})

test('a completed run that a person approved opens the next rung of an envelope', async () => {
  const scene = await opened()
  const { runs } = scene
  await install(scene)
  const high = insideSpec({ stages: [{ share: 0.5, duration: '2s' }] })
  const outside = await propose(runs, 'the next rung', writer, high)
  assert.equal(outside.envelope, undefined)
  assert.equal((await approve(runs, outside)).ok, true)
  const run = runIn(await start(scene, outside.id))
  const faults = [{ name: 'broken', type: 'rpc.error', ...noHits, decided: 9, injected: 9 }]
  const stages = [{ share: 0.5 }] as unknown as typeof run.stages
  runs.active.ended({ ...run, state: 'completed', faults, stages })
  assert.equal((await propose(runs, 'the same rung again', writer, high)).envelope, 'env-test')
})

test('while the clock is behind, no run begins', async () => {
  const scene = await opened()
  await install(scene)
  const { id } = await propose(scene.runs, 'a question')
  const wall = scene.clock.wall.bind(scene.clock)
  scene.clock.wall = () => wall() - 6_000
  assert.equal(await refusedCode(scene, id), 'clock_back')
})

for (const [what, wanted] of [
  ['all runs', 'all'],
  ['the plan', { run: insideSpec().name }],
] as const)
  test(`an order to stop ${what} also stops a start that is being written`, async () => {
    const scene = await opened()
    await install(scene)
    const { id } = await propose(scene.runs, 'a question')
    const started = start(scene, id)
    await Promise.resolve()
    assert.ok(!('ok' in scene.runs.active.stop(writer, wanted, 'to stop')))
    const found = await started
    assert.ok(!found.ok)
    assert.deepEqual([found.code, found.message.startsWith('writer stopped the run')], ['not_allowed', true])
    const next = await propose(scene.runs, 'another question')
    runIn(await start(scene, next.id))
  })
