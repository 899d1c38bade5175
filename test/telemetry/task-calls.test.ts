import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call, Outcome } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { observe } from '../../src/telemetry/observe.ts'
import { newCall, TestCaller } from '../support/caller.ts'
import { observed } from './observed.ts'

const server = 's'
const MINUTE_MS = 60_000

/** Tool calls that become tasks, and requests about tasks. The parameter `reply` of a request is its answer. */
function rig() {
  const seen = observed((call) => {
    const { reply } = call.message.value.params as { reply: object }
    const value = { jsonrpc: '2.0', id: call.id, ...reply }
    const outcome: Outcome = {
      kind: 'answered',
      result: { text: '', value, status: 200 },
      verdict: verdictOf(value),
    }
    return Promise.resolve(outcome)
  })
  const caller = new TestCaller()
  const send = (method: string, params: object, from: Partial<Pick<Call, 'caller' | 'tenant'>> = {}) =>
    seen.service(newCall({ method, server, caller, params: { ...params }, ...from }))
  return {
    ...seen,
    caller,
    begin: (taskId: string, from: { tenant?: string; caller?: TestCaller } = {}) =>
      send(
        'tools/call',
        { name: 't', task: {}, reply: { result: { task: { taskId, status: 'working' } } } },
        from,
      ),
    beginModern: (taskId: string) =>
      send('tools/call', {
        name: 't',
        reply: { result: { resultType: 'task', taskId, status: 'working', ttlMs: 60_000 } },
      }),
    ask: (
      method: string,
      taskId: string,
      reply: object,
      from: { tenant?: string; caller?: TestCaller } = {},
    ) => send(method, { taskId, reply }, from),
    counts: async () => ({
      calls: (await seen.exposed('breakwater_tool_call_verdicts_total')).map(labelsOf),
      attempts: (await seen.exposed('breakwater_upstream_attempts_total')).map(labelsOf),
    }),
  }
}

const labelsOf = (line: string) => line.replace(/^\w+\{server="s",tool="t",|"|outcome=|verdict=|\}/g, '')

/** The counts of a single call and its only attempt. */
const once = (outcome: string) => ({ calls: [`${outcome} 1`], attempts: [`${outcome} 1`] })
const nothing = { calls: [], attempts: [] }

const unknownTask = { error: { code: -32602, message: 'Failed to retrieve task: Task not found' } }
const isError = { result: { content: [], isError: true } }

for (const [how, method, reply, counted] of [
  ['its result is good', 'tasks/result', { result: { content: [] } }, 'returned,unchecked'],
  ['its result is an error of the tool', 'tasks/result', isError, 'returned,tool_error'],
  ['its result is an error', 'tasks/result', { error: { code: -32603 } }, 'rpc_error,rpc_error'],
  ['the server has lost it', 'tasks/result', unknownTask, 'rpc_error,rpc_error'],
  ['the server says that it has lost it', 'tasks/get', unknownTask, 'rpc_error,rpc_error'],
  ['it failed', 'tasks/get', { result: { status: 'failed' } }, 'returned,tool_error'],
  ['it was cancelled', 'tasks/cancel', { result: { status: 'cancelled' } }, 'cancelled'],
  [
    'its answer holds a good result',
    'tasks/get',
    { result: { status: 'completed', result: { content: [] } } },
    'returned,unchecked',
  ],
  [
    'its answer holds an error of the tool',
    'tasks/get',
    { result: { status: 'completed', ...isError } },
    'returned,tool_error',
  ],
  [
    'its answer holds an error',
    'tasks/get',
    { result: { status: 'failed', error: { code: -32603 } } },
    'rpc_error,rpc_error',
  ],
] as const)
  test(`a call that became a task counts once, by how the task ended: ${how}`, async () => {
    for (const begin of ['begin', 'beginModern'] as const) {
      const stage = rig()
      await stage[begin]('one')
      assert.deepEqual(await stage.counts(), nothing)
      await stage.ask('tasks/get', 'one', { result: { taskId: 'one', status: 'working' } })
      await stage.ask('tasks/get', 'another', { result: { taskId: 'another', status: 'failed' } })
      assert.deepEqual(await stage.counts(), nothing)
      await stage.ask(method, 'one', reply)
      await stage.ask('tasks/result', 'one', isError)
      assert.deepEqual(await stage.counts(), once(counted))
      await stage.clock.advance(60 * MINUTE_MS)
      assert.deepEqual(await stage.counts(), once(counted))
      assert.equal(stage.clock.pending, 0)
    }
  })

test('a task whose result is still to be fetched counts by the result', async () => {
  const stage = rig()
  await stage.begin('one')
  await stage.ask('tasks/get', 'one', { result: { taskId: 'one', status: 'completed' } })
  assert.deepEqual(await stage.counts(), nothing)
  await stage.ask('tasks/result', 'one', isError)
  assert.deepEqual(await stage.counts(), once('returned,tool_error'))
})

test('a task that nobody has asked for in 10 minutes counts as accepted', async () => {
  const stage = rig()
  await stage.begin('one')
  await stage.clock.advance(9 * MINUTE_MS)
  await stage.ask('tasks/get', 'one', { result: { taskId: 'one', status: 'working' } })
  await stage.clock.advance(10 * MINUTE_MS - 1)
  assert.deepEqual(await stage.counts(), nothing)
  await stage.clock.advance(1)
  assert.deepEqual(await stage.counts(), once('returned,unchecked'))
})

test('a task that had ended when its call was answered counts at once, and an answer with content is a result', async () => {
  for (const result of [
    { task: { taskId: 'one', status: 'failed' } },
    { task: { taskId: 'one', status: 'working' }, content: [], isError: true },
    { resultType: 'task', taskId: 'one', content: [], isError: true },
  ]) {
    const stage = rig()
    await stage.service(
      newCall({ method: 'tools/call', server, params: { name: 't', task: {}, reply: { result } } }),
    )
    assert.deepEqual(await stage.counts(), once('returned,tool_error'))
  }
})

test('calls that got one task, as where they were joined, end together', async () => {
  const stage = rig()
  await stage.begin('one')
  await stage.begin('one')
  await stage.ask('tasks/result', 'one', isError)
  assert.deepEqual((await stage.counts()).calls, ['returned,tool_error 2'])
  assert.deepEqual((await stage.counts()).attempts, ['returned,tool_error 2'])
})

test('a word about a task ends no call of another tenant', async () => {
  const stage = rig()
  await stage.begin('one')
  await stage.ask('tasks/result', 'one', isError, { caller: new TestCaller(), tenant: 'another' })
  assert.deepEqual(await stage.counts(), nothing)
  stage.taskCalls.closeAll()
  assert.deepEqual(await stage.counts(), once('returned,unchecked'))
})

test('the result of a task that its agent fetches in another session counts, and an error there does not', async () => {
  const stage = rig()
  const other = { tenant: 'team', caller: new TestCaller() }
  await stage.begin('one', { tenant: 'team' })
  await stage.ask('tasks/result', 'one', unknownTask, other)
  assert.deepEqual(await stage.counts(), nothing)
  await stage.ask('tasks/result', 'one', isError, other)
  assert.deepEqual(await stage.counts(), once('returned,tool_error'))
})

test('a question about a task that fails on its way is a question', async () => {
  const stage = rig()
  await stage.begin('one')
  const error = gatewayError('deadline_exceeded', 'late', { sent: true })
  for (let i = 0; i < 3; i++) {
    await stage.clock.advance(9 * MINUTE_MS)
    const call = newCall({ method: 'tasks/result', server, caller: stage.caller, params: { taskId: 'one' } })
    stage.taskCalls.told(call, { kind: 'failed', error })
  }
  assert.deepEqual(await stage.counts(), nothing)
  await stage.ask('tasks/result', 'one', isError)
  assert.deepEqual(await stage.counts(), once('returned,tool_error'))
})

test('a tool that says "task" in a plain result has answered', async () => {
  const stage = rig()
  await stage.service(
    newCall({
      method: 'tools/call',
      server,
      params: { name: 't', reply: { result: { task: { taskId: 'one' } } } },
    }),
  )
  assert.deepEqual(await stage.counts(), once('returned,unchecked'))
})

test('a try that became a task counts as accepted where its agent got another answer', async () => {
  const stage = rig()
  const late: Outcome = { kind: 'failed', error: gatewayError('deadline_exceeded', 'late', { sent: true }) }
  const service = observe(stage)((call) => stage.attempt(call).then(() => late))
  const reply = { result: { task: { taskId: 'one', status: 'working' } } }
  await service(newCall({ method: 'tools/call', server, params: { name: 't', task: {}, reply } }))
  assert.deepEqual(await stage.counts(), { calls: ['timeout 1'], attempts: ['returned,unchecked 1'] })
})

test('a tenant with very many tasks keeps no task of others from counting by its end', async () => {
  const stage = rig()
  const other = new TestCaller()
  await stage.begin('mine', { tenant: 'modest', caller: other })
  for (let i = 0; i < 2_100; i++) await stage.begin(`task ${i}`, { tenant: 'greedy' })
  assert.deepEqual((await stage.counts()).calls, ['returned,unchecked 101'])
  await stage.ask('tasks/result', 'mine', isError, { caller: other })
  assert.deepEqual((await stage.counts()).calls, ['returned,unchecked 101', 'returned,tool_error 1'])
})

test('the agent task of a call that became a task is open until that ends, and has failed with it', async () => {
  const stage = rig()
  await stage.service(
    newCall({
      method: 'tools/call',
      server,
      params: {
        name: 't',
        task: {},
        _meta: { 'dev.breakwater/intent': 'report' },
        reply: { result: { task: { taskId: 'one', status: 'working' } } },
      },
      caller: stage.caller,
    }),
  )
  await stage.clock.advance(5 * MINUTE_MS)
  assert.deepEqual(await stage.exposed('breakwater_intents_total'), [])
  await stage.ask('tasks/result', 'one', isError)
  await stage.clock.advance(MINUTE_MS)
  assert.deepEqual(await stage.exposed('breakwater_intents_total'), [
    'breakwater_intents_total{outcome="failed",source="meta"} 1',
  ])
})
