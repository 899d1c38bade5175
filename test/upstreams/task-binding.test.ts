import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Message, Outcome } from '../../src/mesh/call.ts'
import { TaskBinding } from '../../src/upstreams/shared/task-binding.ts'
import { Tasks } from '../../src/upstreams/shared/tasks.ts'
import { HttpUpstream } from '../../src/upstreams/http/http.ts'
import { newCall, TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { httpOptions, json, rawHttp } from '../support/modern.ts'

const made = (result: Readonly<Record<string, unknown>>): Outcome => ({
  kind: 'answered',
  result: { text: '', value: { jsonrpc: '2.0', id: 1, result }, status: 200 },
  verdict: 'unchecked',
})

test('a task of a server without sessions is found by the caller that began it, and by no other', () => {
  const tasks = new TaskBinding(new ManualClock())
  const [owner, other] = [new TestCaller(), new TestCaller()]
  tasks.answered(toolCall('t', {}, { caller: owner }), made({ resultType: 'task', taskId: 'a' }))
  tasks.answered(toolCall('t', {}, { caller: owner }), made({ task: { taskId: 'b' } }))
  // Naming the task again does not change its owner.
  tasks.answered(toolCall('t', {}, { caller: other }), made({ taskId: 'a' }))
  const ask = (caller: TestCaller, taskId: string) =>
    tasks.refusal(newCall({ method: 'tasks/get', params: { taskId }, caller }))
  for (const taskId of ['a', 'b']) {
    assert.equal(ask(owner, taskId), undefined)
    const refused = ask(other, taskId)
    assert.ok(refused?.kind === 'answered')
    assert.match(refused.result.text, /-32602.*Task not found/)
  }
  assert.equal(ask(other, 'older than this process'), undefined)
})

test('a repeated task id belongs to the new task, and stays so beyond its time', async () => {
  const clock = new ManualClock()
  const tasks = new TaskBinding(clock)
  const [first, second, third] = [new TestCaller(), new TestCaller(), new TestCaller()]
  const begin = (caller: TestCaller) =>
    tasks.answered(
      toolCall('t', {}, { caller }),
      made({ resultType: 'task', taskId: 'task-1', ttlMs: 2_000 }),
    )
  const mayAsk = () =>
    [first, second, third].map(
      (caller) =>
        tasks.refusal(newCall({ method: 'tasks/get', params: { taskId: 'task-1' }, caller })) === undefined,
    )
  begin(first)
  assert.deepEqual(mayAsk(), [true, false, false])
  begin(second)
  assert.deepEqual(mayAsk(), [false, true, false])
  // Servers may keep a task longer than announced.
  await clock.advance(24 * 60 * 60_000 - 1)
  assert.deepEqual(mayAsk(), [false, true, false])
  await clock.advance(1)
  assert.deepEqual(mayAsk(), [true, true, true])
})

test('a notification about a task comes to the caller that began the task', () => {
  const tasks = new TaskBinding(new ManualClock())
  const [owner, other] = [new TestCaller(), new TestCaller()]
  tasks.answered(toolCall('t', {}, { caller: owner }), made({ task: { taskId: 'a' } }))
  const told = (method: string, params: object): Message => ({
    text: '',
    value: { jsonrpc: '2.0', method, params },
  })
  const hears = (message: Message) => [owner, other].map((caller) => tasks.mayHear(caller, message))
  assert.deepEqual(hears(told('notifications/tasks/status', { taskId: 'a' })), [true, false])
  assert.deepEqual(hears(told('notifications/tasks/status', { taskId: 'older' })), [true, true])
  assert.deepEqual(hears(told('notifications/message', { taskId: 'a' })), [true, true])
})

test("a tool's result about another agent's task neither ends the task nor changes its owner", () => {
  const tasks = new Tasks(new ManualClock())
  const [owner, other] = [new TestCaller(), new TestCaller()]
  const answered = (caller: TestCaller, result: object) =>
    tasks.answered('tools/call', caller, { text: '', value: { jsonrpc: '2.0', id: 1, result } })
  answered(owner, { task: { taskId: 'a', status: 'working' } })
  answered(other, { taskId: 'a', status: 'completed' })
  answered(other, { task: { taskId: 'a', status: 'working' } })
  const asked = (caller: TestCaller) =>
    tasks.refusal(newCall({ method: 'tasks/get', params: { taskId: 'a' }, caller }))
  assert.equal(asked(owner), undefined)
  assert.ok(asked(other))
})

test('a caller that begins very many tasks loses its own oldest, and many such callers take none from others', () => {
  const tasks = new TaskBinding(new ManualClock())
  const [owner, other] = [new TestCaller(), new TestCaller()]
  const begin = (caller: TestCaller, taskId: string) =>
    tasks.answered(toolCall('t', {}, { caller }), made({ resultType: 'task', taskId }))
  const refuses = (caller: TestCaller, taskId: string) =>
    tasks.refusal(newCall({ method: 'tasks/get', params: { taskId }, caller })) !== undefined
  begin(owner, 'theirs')
  for (let flood = 0; flood < 11; flood++) {
    const greedy = new TestCaller()
    for (let n = 0; n <= 1_000; n++) begin(greedy, `${flood} ${n}`)
  }
  assert.equal(refuses(other, 'theirs'), true)
  assert.equal(refuses(owner, 'theirs'), false)
  assert.deepEqual([refuses(other, '0 0'), refuses(other, '0 1000')], [false, true])
})

/**
 * A 2025 server that creates a task for each call; `session` names each session. Returns the texts of two callers'
 * replies.
 */
async function twoCallers(t: TestContext, session?: string) {
  let made = 0
  const { url } = await rawHttp(t, ({ method, body }, response) => {
    if (method !== 'POST') return void response.writeHead(405).end()
    if (body.id === undefined) return void response.writeHead(202).end()
    if (body.method === 'initialize' && session !== undefined) response.setHeader('mcp-session-id', session)
    if (body.method === 'tools/call') made++
    const results: Readonly<Record<string, unknown>> = {
      initialize: {
        protocolVersion: '2025-11-25',
        capabilities: {},
        serverInfo: { name: 's', version: '1' },
      },
      'tools/list': { tools: [] },
      'tools/call': { task: { taskId: `task-${made}`, status: 'working' } },
      'tasks/list': { tasks: [{ taskId: 'task-1' }, { taskId: 'task-2' }, { taskId: 'older' }] },
    }
    json(response, { jsonrpc: '2.0', id: body.id, result: results[body.method ?? ''] ?? { secret: true } })
  })
  const upstream = new HttpUpstream(httpOptions(url))
  t.after(() => upstream.close())
  const signal = new AbortController().signal
  const callers = [new TestCaller(), new TestCaller()]
  const sessions = await Promise.all(callers.map((caller) => upstream.open(caller, signal)))
  const ask = async (nth: number, method: string, params: Readonly<Record<string, unknown>> = {}) => {
    const outcome = await sessions[nth]!.exchange(newCall({ method, params, caller: callers[nth]! }))
    assert.ok(outcome.kind === 'answered')
    return outcome.result.text
  }
  for (const nth of [0, 1]) await ask(nth, 'tools/call', { name: 't' })
  return ask
}

test('a server of 2025 that opens no sessions shows each caller its own tasks', async (t) => {
  const ask = await twoCallers(t)
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    assert.match(await ask(0, method, { taskId: 'task-1' }), /secret/)
    assert.match(await ask(1, method, { taskId: 'task-1' }), /Task not found/)
    assert.match(await ask(1, method, { taskId: 'older' }), /secret/)
  }
  assert.match(await ask(0, 'tasks/list'), /"tasks":\[\{"taskId":"task-1"\},\{"taskId":"older"\}\]/)
  assert.match(await ask(1, 'tasks/list'), /"tasks":\[\{"taskId":"task-2"\},\{"taskId":"older"\}\]/)
})

test('a server with sessions judges by itself who asks for a task', async (t) => {
  const ask = await twoCallers(t, 'a-session')
  assert.match(await ask(1, 'tasks/get', { taskId: 'task-1' }), /secret/)
  assert.match(await ask(1, 'tasks/list'), /task-1.*task-2.*older/)
})
