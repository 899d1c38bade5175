import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FlakyServer } from '../e2e/support/flaky.ts'
import { killAll } from '../e2e/support/program.ts'
import { runGateway } from './running-gateway.ts'

interface Plan {
  readonly refusals: readonly string[]
}

const specFor = (server: string, more: object = {}) => ({
  name: 'drill',
  owner: 'tests',
  reason: 'to see',
  hypothesis: { steadyState: ['status = up'] },
  targets: { server },
  faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: 0.1 }] },
  ...more,
})

/** A gateway before one server; the gateway knows the server under these names. */
async function setUp(t: TestContext, servers: Readonly<Record<string, object>>, blocks: object = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-state-'))
  t.after(() => rm(folder, { recursive: true }))
  t.after(killAll)
  const { url } = await FlakyServer.start()
  const named = Object.entries(servers).map(([name, more]) => [name, { url, trusted: true, ...more }])
  const gateway = await runGateway(t, {
    servers: Object.fromEntries(named),
    gateway: { environment: 'staging', stateDir: folder },
    chaos: { enabled: true },
    ...blocks,
  })
  for (const name of Object.keys(servers)) await gateway.isUp(name)
  const refusalsFor = async (spec: object) =>
    (await gateway.admin<Plan>('/admin/experiments/plan', { spec })).refusals
  return { gateway, refusalsFor }
}

test('a protected server is never a target', async (t) => {
  const { gateway, refusalsFor } = await setUp(t, { flaky: {}, flawless: { protected: true } })
  assert.deepEqual(await refusalsFor(specFor('flaky')), [])
  const refused = 'server flawless is protected: it is never a target'
  for (const server of ['fl*', 'flawless'])
    assert.ok((await refusalsFor(specFor(server))).includes(refused), server)
  const asked = await gateway.admin<{ error: string }>('/admin/experiments', { spec: specFor('fl*') })
  assert.equal(asked.error, 'refused: nothing was injected')
})

test('a run whose arms would exceed a server’s concurrent calls is refused', async (t) => {
  const policies = { overrides: [{ match: { server: 'flaky' }, bulkhead: { concurrent: 2 } }] }
  const { refusalsFor } = await setUp(t, { flaky: {}, roomy: {} }, { policies })
  const stages = [{ share: 0.1, duration: '1m' }]
  assert.deepEqual(await refusalsFor(specFor('roomy', { stages })), [])
  assert.deepEqual(await refusalsFor(specFor('flaky', { stages })), [
    'stages[0]: a limit of 2 calls at once cannot be divided into 3 parts: with at least one each, the sum would be 3',
  ])
})

test('a gate whose durations no call can reach is refused: each call ends at its deadline', async (t) => {
  const policies = {
    overrides: [{ match: { server: 'quick' }, deadline: { total: '2s' } }],
    sets: { patient: { deadline: { total: '2m' } }, endless: { deadline: false } },
  }
  const { refusalsFor } = await setUp(t, { flaky: {}, quick: {} }, { policies })
  const gated = (server: string, rule: object, more: object = {}) =>
    refusalsFor(specFor(server, { gate: { rollbackOn: [{ metric: 'p95', ...rule }] }, ...more }))
  const never = 'is never exceeded: calls of'
  const long = { stages: [{ share: 0.1, duration: '10m' }] }
  assert.deepEqual(await gated('flaky', { above: '9m' }, long), [
    `gate.rollbackOn[0].above: 9m ${never} the treatment end at their deadline of 55s`,
  ])
  assert.deepEqual(await gated('quick', { above: '2s', of: 'difference' }), [
    `gate.rollbackOn[0].above: 2s ${never} the treatment end at their deadline of 2s`,
  ])
  assert.deepEqual(await gated('quick', { above: '1900ms' }), [])
  const arms = { control: 'default', treatment: 'patient' }
  assert.deepEqual(await gated('flaky', { above: '100s' }, { ...long, arms }), [])
  assert.deepEqual(await gated('flaky', { above: '9m' }, { ...long, arms: { treatment: 'endless' } }), [])
})

test('a fault at a tool without targets is injected, and the answer says that nothing is hit', async (t) => {
  const { gateway } = await setUp(t, { flaky: {} })
  const inject = async (tool: string, server = 'flaky', allowWrites = true) =>
    (
      await gateway.admin<{ faultId?: string; warnings?: string[] }>('/chaos/inject', {
        target: server,
        config: { type: 'rpc.error', rate: 1, match: { tool } },
        allowWrites,
      })
    ).warnings
  assert.deepEqual(await inject('raed'), [
    'match.tool: "raed" matches no tool of flaky: the fault hits nothing until there is such a tool; did you mean read?',
  ])
  assert.equal(await inject('re*'), undefined)
  assert.deepEqual(await inject('write', 'flaky', false), [
    'allowWrites: hits no tool call: no matching tool of flaky is known to be read-only',
  ])
  assert.equal(await inject('read', 'flaky', false), undefined)
})
