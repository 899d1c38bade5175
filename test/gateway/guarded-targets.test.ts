import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { killAll } from '../e2e/support/program.ts'
import { runGateway } from './running-gateway.ts'

test('a protected server is never a target', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-state-'))
  t.after(() => rm(folder, { recursive: true }))
  t.after(killAll)
  const flaky = await FlakyServer.start()
  const gateway = await runGateway(t, {
    servers: {
      flaky: { url: flaky.url, trusted: true },
      flawless: { url: flaky.url, trusted: true, protected: true },
    },
    gateway: { environment: 'staging', stateDir: folder },
    chaos: { enabled: true },
  })
  await gateway.isUp('flaky')
  const specFor = (server: string) => ({
    name: 'drill',
    owner: 'tests',
    reason: 'to see',
    hypothesis: { steadyState: ['status = up'] },
    targets: { server },
    faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
    gate: { rollbackOn: [{ metric: 'error_ratio', above: 0.1 }] },
  })
  interface Plan {
    readonly refusals: readonly string[]
  }
  const refusalsFor = async (server: string) =>
    (await gateway.admin<Plan>('/admin/experiments/plan', { spec: specFor(server) })).refusals
  await gateway.isUp('flawless')
  assert.deepEqual(await refusalsFor('flaky'), [])
  const refused = 'server flawless is protected: it is never a target'
  for (const server of ['fl*', 'flawless']) assert.ok((await refusalsFor(server)).includes(refused), server)
  const asked = await gateway.admin<{ error: string }>('/admin/experiments', { spec: specFor('fl*') })
  assert.equal(asked.error, 'refused: nothing was injected')
})

test('a run whose arms would give a server more calls at once than it may get is refused', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-state-'))
  t.after(() => rm(folder, { recursive: true }))
  t.after(killAll)
  const flaky = await FlakyServer.start()
  const gateway = await runGateway(t, {
    servers: { flaky: { url: flaky.url, trusted: true }, roomy: { url: flaky.url, trusted: true } },
    policies: { overrides: [{ match: { server: 'flaky' }, bulkhead: { concurrent: 2 } }] },
    gateway: { environment: 'staging', stateDir: folder },
    chaos: { enabled: true },
  })
  for (const server of ['flaky', 'roomy']) await gateway.isUp(server)
  const refusalsFor = async (server: string) => {
    const spec = {
      name: 'drill',
      owner: 'tests',
      reason: 'to see',
      hypothesis: { steadyState: ['status = up'] },
      targets: { server },
      stages: [{ share: 0.1, duration: '1m' }],
      faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
      gate: { rollbackOn: [{ metric: 'error_ratio', above: 0.1 }] },
    }
    return (await gateway.admin<{ refusals: readonly string[] }>('/admin/experiments/plan', { spec }))
      .refusals
  }
  assert.deepEqual(await refusalsFor('roomy'), [])
  assert.deepEqual(await refusalsFor('flaky'), [
    'stages[0]: a limit of 2 calls at once cannot be divided in 3: with one for each part at least, it would be 3',
  ])
})
