import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import { TaskBinding } from '../../src/upstreams/modern/task-binding.ts'
import { Tasks } from '../../src/upstreams/shared/tasks.ts'
import { newCall, TestCaller, toolCall } from '../support/caller.ts'
import { ManualClock } from '../support/manual-clock.ts'

const made = (result: Readonly<Record<string, unknown>>): Outcome => ({
  kind: 'answered',
  result: { text: '', value: { jsonrpc: '2.0', id: 1, result }, status: 200 },
  verdict: 'unchecked',
})

test('a task of a server without sessions is found by the caller that began it, and by no other', () => {
  const tasks = new TaskBinding(new ManualClock())
  const [owner, other] = [new TestCaller(), new TestCaller()]
  tasks.learn(toolCall('t', {}, { caller: owner }), made({ resultType: 'task', taskId: 'a' }))
  tasks.learn(toolCall('t', {}, { caller: owner }), made({ task: { taskId: 'b' } }))
  // To name it again makes it nobody else's.
  tasks.learn(toolCall('t', {}, { caller: other }), made({ taskId: 'a' }))
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

test('an id that its server gives once more is that of the new task, and nobody has one whose time is over', async () => {
  const clock = new ManualClock()
  const tasks = new TaskBinding(clock)
  const [first, second, third] = [new TestCaller(), new TestCaller(), new TestCaller()]
  const begin = (caller: TestCaller) =>
    tasks.learn(toolCall('t', {}, { caller }), made({ resultType: 'task', taskId: 'task-1', ttlMs: 2_000 }))
  const mayAsk = () =>
    [first, second, third].map(
      (caller) =>
        tasks.refusal(newCall({ method: 'tasks/get', params: { taskId: 'task-1' }, caller })) === undefined,
    )
  begin(first)
  assert.deepEqual(mayAsk(), [true, false, false])
  begin(second)
  assert.deepEqual(mayAsk(), [false, true, false])
  await clock.advance(2_000)
  // The server has forgotten it, and says so itself.
  assert.deepEqual(mayAsk(), [true, true, true])
})

test('what a tool says of the task of another agent neither ends it nor makes it its own', () => {
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
    tasks.learn(toolCall('t', {}, { caller }), made({ resultType: 'task', taskId }))
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
