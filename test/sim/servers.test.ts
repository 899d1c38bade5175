import assert from 'node:assert/strict'
import { test } from 'node:test'
import { resultOf } from '../../src/mesh/classify.ts'
import { SimulatedGateway } from '../../src/sim/gateway.ts'
import { none, only } from '../../src/sim/policy-choices.ts'
import { lookup, planned } from '../../src/sim/scene.ts'
import type { ErrorForm } from '../../src/sim/servers.ts'
import { VirtualClock } from '../../src/sim/virtual-clock.ts'

const asked = { server: 'server', tool: 'get', args: { service: 'a' }, intent: 'task 1' }

/** A gateway before one server with a pool of 1 and an attempt timeout of `timeout`. */
function gatewayOf(clock: VirtualClock, runsOn: boolean, timeout: number, faults: object[] = []) {
  return new SimulatedGateway({
    clock,
    seed: 1,
    servers: { server: { pool: 1, runsOn, tools: { get: lookup('get') } } },
    policies: only('timeout', { attemptTimeout: { timeout } }).policies,
    plan: { seed: 1, faults: faults.map(planned) },
  })
}

test('a call that is given up while its reply trickles in has left its place in the pool once', async () => {
  const clock = new VirtualClock()
  const drip = { name: 'drip', type: 'conn.slow_drip', rate: 1, chunk: 1, gap: '1s' }
  const gateway = gatewayOf(clock, false, 500, [drip])
  const { outcome } = await clock.run(gateway.call(asked))
  assert.equal(outcome.kind, 'failed')
  assert.deepEqual(gateway.servers.get('server')!.load, { busy: 0, waiting: 0 })
})

test('work of a server for a caller that has left is unwanted, begun or not', async () => {
  const clock = new VirtualClock()
  const gateway = gatewayOf(clock, true, 5)
  await clock.run(Promise.all([gateway.call(asked), gateway.call(asked)]))
  const server = gateway.servers.get('server')!
  assert.deepEqual(
    [server.unwanted, server.load],
    [
      { runs: 1, ms: 15 },
      { busy: 1, waiting: 1 },
    ],
  )
  await clock.run(new Promise<void>((resolve) => void clock.after(30, resolve)))
  assert.deepEqual(
    [server.unwanted, server.load],
    [
      { runs: 2, ms: 35 },
      { busy: 1, waiting: 0 },
    ],
  )
})

test('the journal of a simulation has what faults did, and counts what they were not drawn for', async () => {
  const clock = new VirtualClock()
  const faults = [1, 0].map((rate) => ({ name: `rate-${rate}`, type: 'rpc.error', rate }))
  const gateway = gatewayOf(clock, false, 500, faults)
  await clock.run(gateway.call(asked))
  assert.deepEqual(
    gateway.faults.map(({ counts }) => [counts.decided, counts.injected]),
    [
      [1, 1],
      [1, 0],
    ],
  )
  const told = gateway.journal.decisions().map(({ fault, status }) => [fault, status])
  assert.deepEqual(told, [['rate-1', 'applied']])
})

test('a run that fails says so as an error of the server, of its caller, or of the tool', async () => {
  const forms: readonly (readonly [ErrorForm | undefined, string, string])[] = [
    [undefined, 'rpc_error', 'rpc_error'],
    ['internal_error', 'rpc_error', 'rpc_error'],
    ['invalid_params', 'rpc_error', 'caller_error'],
    ['tool_error', 'tool_error', 'returned'],
  ]
  for (const [as, verdict, result] of forms) {
    const clock = new VirtualClock()
    const condition = () => ({ is: 'fails' as const, rate: 1, ...(as !== undefined && { as }) })
    const servers = { server: { condition, tools: { get: lookup('get') } } }
    const gateway = new SimulatedGateway({ clock, seed: 1, servers, policies: none.policies })
    const { outcome } = await clock.run(gateway.call(asked))
    assert.equal(outcome.kind === 'answered' && outcome.verdict, verdict, as)
    assert.equal(resultOf(outcome), result, as)
  }
})
