import assert from 'node:assert/strict'
import { fastify } from 'fastify'
import { test, type TestContext } from 'node:test'
import { GuardedExperiments } from '../../src/experiments/guarded/guarded.ts'
import { experimentSpec } from '../../src/gateway/guarded/spec.ts'
import { registerAdminGuarded } from '../../src/routes/admin-guarded.ts'
import { specOf } from '../experiments/guarded/world.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

/** A control port with runs that wait for approval. */
async function waiting(t: TestContext, names: readonly string[]): Promise<string> {
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
  registerAdminGuarded(app, { guarded, spec: experimentSpec })
  t.after(() => app.close())
  return app.listen({ port: 0, host: '127.0.0.1' })
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
