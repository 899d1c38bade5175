import assert from 'node:assert/strict'
import { fastify } from 'fastify'
import { test, type TestContext } from 'node:test'
import { digestOf } from '../../src/approval/digest.ts'
import { newKey, openPrivateKey, sign } from '../../src/approval/keys.ts'
import { GuardedExperiments } from '../../src/experiments/guarded/guarded.ts'
import { experimentSpec } from '../../src/gateway/guarded/spec.ts'
import { registerAdminGuarded } from '../../src/routes/admin-guarded.ts'
import { specOf } from '../experiments/guarded/world.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

/** A control port with runs that wait for approval. */
const waiting = async (t: TestContext, names: readonly string[]) => (await waitingRuns(t, names)).base

/** As `waiting`. `onUse` runs during the writes of a signed approval, which counts as checked. */
async function waitingRuns(
  t: TestContext,
  names: readonly string[],
  onUse: (guarded: GuardedExperiments) => Promise<void> = () => Promise.resolve(),
) {
  const journal = { write: () => Promise.resolve(), flush: () => Promise.resolve() }
  const guarded = new GuardedExperiments({
    clock: new ManualClock(),
    journal: journal,
    survey: () => ({
      refusals: [],
      doubts: [],
      targets: { environment: 'test', servers: [] },
      hashes: { config: 'c', policies: 'p', faults: 'f' },
      seed: '1',
    }),
    groundOf: () => 'ground',
    worldOf: () => assert.fail('no run begins'),
    proofOf: () => ({ armed: [], arms: [], chaos: 'disarmed' }),
    approvers: () => undefined,
    withoutSecrets: (spec) => spec,
    emit: () => undefined,
  })
  for (const name of names) {
    const spec = { ...specOf({ approval: 'required' }), name }
    assert.ok((await guarded.run(spec, { by: 'tester', approvedBy: undefined, firstStage: 0 })).ok)
  }
  const app = fastify({ forceCloseConnections: true })
  const agentRuns = {
    trust: { fingerprint: 'f' },
    hasher: { of: () => ({}), changed: () => undefined },
    approvals: {
      check: () => ({ ok: true, by: 'boss', keyId: 'k' }),
      use: () => onUse(guarded),
    },
  }
  registerAdminGuarded(app, { guarded, spec: experimentSpec, agentRuns: agentRuns as never })
  t.after(() => app.close())
  return { guarded, base: await app.listen({ port: 0, host: '127.0.0.1' }) }
}

/** Listens to a run; `isOver` after its last event. */
async function listen(base: string, name: string) {
  const response = await fetch(`${base}/admin/experiments/${name}/events`)
  const state = { status: response.status, isOver: false }
  void response.text().then(
    () => (state.isOver = true),
    () => undefined,
  )
  return state
}

test('the first of nine listeners to a waiting run is dropped', async (t) => {
  const base = await waiting(t, ['drill'])
  const all: Awaited<ReturnType<typeof listen>>[] = []
  for (let n = 0; n < 9; n++) all.push(await listen(base, 'drill'))
  assert.deepEqual(
    all.map(({ status }) => status),
    Array.from({ length: 9 }, () => 200),
  )
  await until('the first listener is dropped', () => all[0]!.isOver)
  assert.ok(all.slice(1).every(({ isOver }) => !isOver))
})

test('a listener to everything keeps nobody out', async (t) => {
  const names = Array.from({ length: 10 }, (_, at) => `drill-${at}`)
  const base = await waiting(t, names)
  const all: Awaited<ReturnType<typeof listen>>[] = []
  for (const name of names) for (let n = 0; n < 7; n++) all.push(await listen(base, name))
  assert.ok(all.every(({ status }) => status === 200))
  await until('six listeners are dropped', () => all.slice(0, 6).every(({ isOver }) => isOver))
  assert.ok(all.slice(6).every(({ isOver }) => !isOver))
})

test('the name of an approver is one line', async (t) => {
  const base = await waiting(t, ['drill'])
  const response = await fetch(`${base}/admin/experiments/drill/approve`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ by: 'somebody\n# Approved' }),
  })
  assert.equal(response.status, 400)
  assert.match(await response.text(), /expected one line without control characters/)
})

test('a signed approval does not begin a run that takes the place of the signed run', async (t) => {
  const { guarded, base } = await waitingRuns(t, ['drill'], async (runs) => {
    runs.stop('drill', 'tester', 'to ask for another run')
    const harmful = specOf({ approval: 'required', stages: [{ share: 0.9, duration: '1h' }] })
    assert.ok((await runs.run(harmful, { by: 'tester', approvedBy: undefined, firstStage: 0 })).ok)
  })
  const approval = {
    format: 1,
    proposal: guarded.get('drill')!.id,
    gateway: 'g',
    planHash: digestOf(1),
    groundHash: digestOf(2),
    targetsHash: digestOf(3),
    firstStage: 1,
    issuedAt: new Date(0).toISOString(),
    expiresAt: new Date(1).toISOString(),
    nonce: 'A'.repeat(22),
  }
  const key = openPrivateKey(newKey('a passphrase of tests').pem, 'a passphrase of tests')!
  const response = await fetch(`${base}/admin/experiments/drill/approval`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ approval, signature: sign('approval', approval, key, 'boss') }),
  })
  assert.equal(response.status, 409, await response.clone().text())
  assert.match(await response.text(), /the approval is for the run/)
  assert.equal(guarded.get('drill')?.state, 'pending_approval')
})
