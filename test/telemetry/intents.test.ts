import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { answered, failed, rpcError } from '../policies/breaker/rig.ts'
import { intentsRig } from './intents/rig.ts'
import { exposedBy } from './observed.ts'

function setUp() {
  const { metrics, ...rig } = intentsRig()
  const one = async (name: string) => Number((await exposedBy(metrics, name))[0]?.split(' ').at(-1) ?? 0)
  return {
    ...rig,
    closed: () => exposedBy(metrics, 'breakwater_intents_total'),
    calls: () => one('breakwater_intent_tool_calls_sum'),
    async plain(name: string): Promise<number> {
      const [, value] = new RegExp(`^${name} (.*)$`, 'm').exec(await metrics.registry.metrics()) ?? []
      return Number(value)
    },
  }
}

const line = (outcome: string, count: number, more = 'source="header"') =>
  `breakwater_intents_total{outcome="${outcome}",${more}} ${count}`

test('a task ends after an idle time, and then its calls are reported', async () => {
  const { clock, begin, closed, calls } = setUp()
  begin('x')()
  await clock.advance(29_999)
  begin('x')()
  await clock.advance(29_999)
  assert.deepEqual(await closed(), [])
  await clock.advance(1)
  assert.deepEqual(await closed(), [line('ok', 1)])
  assert.equal(await calls(), 2)
  assert.equal(clock.pending, 0)
})

test('tasks end each at its own time', async () => {
  const { clock, begin, intents } = setUp()
  begin('x')()
  await clock.advance(10_000)
  begin('y')()
  await clock.advance(10_000)
  begin('x')()
  await clock.advance(19_999)
  assert.equal(intents.size, 2)
  await clock.advance(1)
  assert.equal(intents.size, 1)
  await clock.advance(10_000)
  assert.equal(intents.size, 0)
  assert.equal(clock.pending, 0)
})

test('a task with a call under way is not over, however long that takes', async () => {
  const { clock, begin, closed, intents } = setUp()
  const end = begin('x')
  await clock.advance(200_000)
  assert.equal(intents.size, 1)
  end()
  await clock.advance(29_999)
  assert.deepEqual(await closed(), [])
  await clock.advance(1)
  assert.deepEqual(await closed(), [line('ok', 1)])
})

test('one failed call makes a failed task, and only failures felt by the agent count', async () => {
  const outcomes: [Outcome, string][] = [
    [answered('correct'), 'ok'],
    [answered('partial_declared'), 'ok'],
    [rpcError(-32602), 'ok'],
    [failed('cancelled'), 'ok'],
    [answered('tool_error'), 'failed'],
    [answered('schema_invalid'), 'failed'],
    [rpcError(-32603), 'failed'],
    [failed('upstream_disconnected'), 'failed'],
    [{ kind: 'rejected', error: gatewayError('overloaded', 'full'), by: 'x' }, 'failed'],
  ]
  for (const [outcome, expected] of outcomes) {
    const { begin, closed, intents } = setUp()
    begin('x')()
    begin('x')(outcome)
    begin('x')()
    intents.closeAll()
    assert.deepEqual(await closed(), [line(expected, 1)], JSON.stringify(outcome))
  }
})

test('the same name is another task for another tenant', async () => {
  const { begin, intents } = setUp()
  begin('x', { tenant: 'a' })()
  begin('x', { tenant: 'b' })()
  assert.equal(intents.size, 2)
})

test('a task counts for the arm of its first call', async () => {
  const { begin, closed, intents } = setUp()
  begin('x', { arm: 'control' })()
  intents.closeAll()
  assert.deepEqual(await closed(), [line('ok', 1, 'arm="control",source="header"')])
})

test('calls of no known task are counted, and open none', async () => {
  const { begin, intents, plain } = setUp()
  for (let i = 0; i < 3; i++) begin(undefined)()
  assert.equal(intents.size, 0)
  assert.equal(await plain('breakwater_intents_unattributed_total'), 3)
})

test('with too many open tasks, the quietest is taken to be over, and its late calls begin no new task', async () => {
  const { clock, begin, intents, closed, plain } = setUp()
  intents.tune({ idle: 30_000, max: 2, remember: 0 })
  const late = begin('x')
  begin('y')()
  await clock.advance(1)
  begin('z')()
  assert.equal(intents.size, 2)
  assert.deepEqual(await closed(), [line('ok', 1)])
  assert.equal(await plain('breakwater_intents_evicted_total'), 1)
  late(failed())
  intents.closeAll()
  assert.deepEqual(await closed(), [line('ok', 3)])
})

test('ten thousand tasks and more take no more room than allowed', async () => {
  const { clock, begin, intents, calls } = setUp()
  for (let i = 0; i < 10_500; i++) begin(`task ${i}`)()
  assert.equal(intents.size, 10_000)
  assert.equal(clock.pending, 1)
  await clock.advance(30_000)
  assert.equal(intents.size, 0)
  assert.equal(await calls(), 10_500)
})

test('at the end all open tasks are counted, and no timer is left', async () => {
  const { clock, begin, intents, closed } = setUp()
  begin('x')()
  begin('y')(failed())
  intents.closeAll()
  assert.deepEqual(await closed(), [line('ok', 1), line('failed', 1)])
  assert.equal(clock.pending, 0)
})
