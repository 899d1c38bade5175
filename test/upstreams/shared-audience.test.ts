import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Call } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { MAX_ABANDONED } from '../../src/upstreams/pipe/abandoned.ts'
import { newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { lastId } from '../support/linked.ts'
import type { Json } from '../support/memory-pipe.ts'
import { answered, shared } from '../support/shared.ts'

function subscribe(uri: string): Call {
  return newCall({ method: 'resources/subscribe', params: { uri } })
}

function setLevel(level: string): Call {
  return newCall({ method: 'logging/setLevel', params: { level } })
}

const sampling = { id: 's1', method: 'sampling/createMessage', params: {} }
const logged = (level: string) => ({ method: 'notifications/message', params: { level, data: 'x' } })
const updated = (uri: string) => ({ method: 'notifications/resources/updated', params: { uri } })

test('a request of the server goes to the one caller with calls in flight', async () => {
  const { pipe, join } = await shared()
  const [busy, idle] = [join(), join()]
  const channel = new TestChannel({ 'sampling/createMessage': '{"role":"assistant"}' })
  void busy.upstreamSession.exchange(toolCall('t', {}, { caller: busy.caller, channel }))
  void idle.upstreamSession.exchange(newCall({ method: 'tools/list', caller: idle.caller }))
  void pipe.say(sampling)
  assert.equal(channel.received.length, 1)
  assert.deepEqual([busy.caller.received, idle.caller.received], [[], []])
  assert.deepEqual(pipe.answers(), [{ jsonrpc: '2.0', id: 's1', result: { role: 'assistant' } }])
})

test('a request of the server that could be for two callers, or for none, goes to nobody', async () => {
  const { pipe, join } = await shared()
  const joined = [join(), join()]
  const channel = new TestChannel()
  void pipe.say(sampling)
  for (const { upstreamSession, caller } of joined)
    void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say(sampling)
  assert.deepEqual(channel.received, [])
  const errors = pipe.answers().map(({ error }) => error as { code: number; message: string })
  assert.deepEqual(
    errors.map(({ code }) => code),
    [-32603, -32603],
  )
  assert.match(errors[0]?.message ?? '', /sharing: per_session/)
})

test('an open task holds back what the server asks for others, says whose it is, and does so for ten minutes', async () => {
  const { pipe, join, clock, lines, withheld } = await shared()
  const [owner, other] = [join(Object.assign(new TestCaller(), { client: '192.0.2.7' })), join()]
  const begin = toolCall('t', {}, { caller: owner.caller, channel: new TestChannel() })
  const task = { taskId: 'x', status: 'working', ttl: null }
  await answered(pipe, owner.upstreamSession, begin, { result: { task } })
  const channel = new TestChannel({ 'sampling/createMessage': '{"role":"assistant"}' })
  void other.upstreamSession.exchange(toolCall('t', {}, { caller: other.caller, channel }))
  void pipe.say(sampling)
  void pipe.say(sampling)
  assert.deepEqual([channel.received.length, withheld.count, lines.length], [0, 2, 1])
  assert.match(String(lines[0]?.msg), /while a task of .+ at 192\.0\.2\.7 is open: .* for 10m at most/)
  await clock.advance(9.5 * 60_000)
  void pipe.say(sampling)
  assert.match(String(lines.at(-1)?.msg), /for 30s at most; .*sharing: per_session/)
  await clock.advance(30_000)
  void pipe.say(sampling)
  assert.deepEqual([channel.received.length, withheld.count, lines.length], [1, 3, 2])
  // The task still belongs to its owner.
  const get = newCall({ method: 'tasks/get', params: { taskId: 'x' }, caller: other.caller })
  assert.match(JSON.stringify(await other.upstreamSession.exchange(get)), /Task not found/)
})

test("one client's roots are not told to a process that others use as well", async () => {
  const { pipe, join } = await shared()
  const { upstreamSession, caller } = join()
  const channel = new TestChannel()
  void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 'r1', method: 'roots/list' })
  assert.deepEqual([channel.received, caller.received], [[], []])
  const { code, message } = pipe.answers()[0]?.error as { code: number; message: string }
  assert.equal(code, -32601)
  assert.match(message, /sharing: per_session/)
})

test('a client is not asked for what it cannot do', async () => {
  const { pipe, join } = await shared()
  const { upstreamSession, caller } = join(
    new TestCaller({ initializeParams: { capabilities: { sampling: {} } } }),
  )
  const channel = new TestChannel()
  void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say({ id: 'e1', method: 'elicitation/create', params: {} })
  void pipe.say(sampling)
  assert.deepEqual(
    channel.received.map(({ message }) => message.value.id),
    ['s1'],
  )
  assert.equal((pipe.answers()[0]?.error as Json).code, -32601)
})

test('logs go to the only caller that has calls in flight, as far as it wants them', async () => {
  const { pipe, join } = await shared()
  const [quiet, verbose] = [join(), join()]
  await answered(pipe, quiet.upstreamSession, setLevel('error'))
  await answered(pipe, verbose.upstreamSession, setLevel('debug'))
  const channel = new TestChannel()
  void quiet.upstreamSession.exchange(toolCall('t', {}, { caller: quiet.caller, channel }))
  void pipe.say(logged('info'))
  void pipe.say(logged('error'))
  assert.deepEqual(channel.received.length, 1)
  assert.deepEqual([quiet.caller.received, verbose.caller.received], [[], []])
})

test('logs without a known caller reach nobody', async () => {
  const { pipe, join } = await shared()
  const joined = [join(), join()]
  void pipe.say(logged('critical'))
  const channel = new TestChannel()
  for (const { upstreamSession, caller } of joined) {
    await answered(pipe, upstreamSession, toolCall('t', {}, { caller, channel }))
    void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  }
  void pipe.say(logged('critical'))
  void pipe.say({ method: 'notifications/vendor/news' })
  assert.deepEqual(channel.received, [])
  for (const { caller } of joined) assert.deepEqual(caller.received, [])
})

test('logs between its calls go to a caller that has the process to itself, until another one calls', async () => {
  const { pipe, join } = await shared()
  const [one, other] = [join(), join()]
  await answered(pipe, one.upstreamSession, toolCall('t', {}, { caller: one.caller }))
  await answered(pipe, other.upstreamSession, newCall({ method: 'tools/list', caller: other.caller }))
  void pipe.say(logged('info'))
  assert.deepEqual([one.caller.received.length, other.caller.received.length], [1, 0])
  await answered(pipe, other.upstreamSession, toolCall('t', {}, { caller: other.caller }))
  void pipe.say(logged('info'))
  assert.deepEqual([one.caller.received.length, other.caller.received.length], [1, 0])
})

test('a question that may be for a call which was given up goes to nobody else', async () => {
  const { pipe, join } = await shared()
  const [leaving, staying] = [join(), join()]
  const channel = new TestChannel({ 'sampling/createMessage': '{}' })
  const cancelled = new AbortController()
  const { signal } = cancelled
  void leaving.upstreamSession.exchange(toolCall('t', {}, { caller: leaving.caller, signal }))
  const abandoned = lastId(pipe)
  void staying.upstreamSession.exchange(toolCall('t', {}, { caller: staying.caller, channel }))
  cancelled.abort(gatewayError('cancelled', 'cancelled'))
  void pipe.say(sampling)
  void pipe.say(logged('critical'))
  assert.deepEqual(channel.received, [])
  assert.equal((pipe.answers()[0]?.error as Json).code, -32603)
  // The answer shows that the server has finished the call.
  void pipe.say({ id: abandoned, result: {} })
  void pipe.say(sampling)
  assert.equal(channel.received.length, 1)
})

test('a question for a caller that has left goes to nobody, now and later', async () => {
  const { pipe, join } = await shared()
  const [leaving, staying] = [join(), join()]
  const channel = new TestChannel()
  void leaving.upstreamSession.exchange(toolCall('t', {}, { caller: leaving.caller }))
  void staying.upstreamSession.exchange(toolCall('t', {}, { caller: staying.caller, channel }))
  await leaving.upstreamSession.close()
  void pipe.say(sampling)
  assert.deepEqual([channel.received, leaving.caller.received, staying.caller.received], [[], [], []])
  assert.equal((pipe.answers()[0]?.error as Json).code, -32603)
})

/** Two callers: the first has given up a call without an answer, the second has a call under way. */
async function givenUp() {
  const scene = await shared()
  const [leaving, staying] = [scene.join(), scene.join()]
  const channel = new TestChannel({ 'sampling/createMessage': '{}' })
  const giveUp = async () => {
    const cancelled = new AbortController()
    const { signal } = cancelled
    void leaving.upstreamSession.exchange(toolCall('t', {}, { caller: leaving.caller, signal }))
    const id = lastId(scene.pipe)
    cancelled.abort(gatewayError('cancelled', 'cancelled'))
    await scene.clock.advance(0)
    return id
  }
  const first = await giveUp()
  void staying.upstreamSession.exchange(toolCall('t', {}, { caller: staying.caller, channel }))
  const pong = () => void scene.pipe.say({ id: lastId(scene.pipe, 'ping'), result: {} })
  const isAsked = () => {
    const before = channel.received.length
    void scene.pipe.say(sampling)
    return channel.received.length > before
  }
  return { ...scene, leaving, giveUp, first, pong, isAsked }
}

test('a call that was given up counts until the server has read so and has had time to stop', async () => {
  const { pipe, clock, lines, withheld, leaving, pong, isAsked } = await givenUp()
  assert.equal(isAsked(), false)
  assert.deepEqual([withheld.count, lines.length], [1, 1])
  assert.match(String(lines[0]?.msg), /while a call that .+ gave up may go on: .+ for 10m at most; .*sharing/)
  await leaving.upstreamSession.close()
  await clock.advance(60_000)
  assert.deepEqual([isAsked(), pipe.sent('ping').length], [false, 1])
  pong()
  await clock.advance(4_999)
  assert.equal(isAsked(), false)
  await clock.advance(1)
  assert.equal(isAsked(), true)
})

test('a late answer to an abandoned call keeps questions back from then on, for ten minutes at most', async () => {
  const { pipe, clock, giveUp, first, pong, isAsked } = await givenUp()
  pong()
  await clock.advance(5_000)
  assert.equal(isAsked(), true)
  void pipe.say({ id: first, result: {} })
  const second = await giveUp()
  await giveUp()
  pong()
  await clock.advance(9 * 60_000)
  assert.equal(isAsked(), false)
  void pipe.say({ id: second, result: {} })
  assert.equal(isAsked(), false)
  await clock.advance(60_000)
  assert.equal(isAsked(), true)
})

test('with more calls given up than are remembered, questions are for nobody until all of them are over', async () => {
  const { pipe, join, clock } = await shared()
  const { upstreamSession, caller } = join()
  const giveUp = () => {
    const cancelled = new AbortController()
    void upstreamSession.exchange(toolCall('t', {}, { caller, signal: cancelled.signal }))
    cancelled.abort(gatewayError('cancelled', 'cancelled'))
  }
  for (let n = 0; n < MAX_ABANDONED; n++) giveUp()
  const channel = new TestChannel()
  void upstreamSession.exchange(toolCall('t', {}, { caller, channel }))
  void pipe.say(sampling)
  assert.equal(channel.received.length, 1)
  giveUp()
  void pipe.say({ ...sampling, id: 's2' })
  assert.equal(channel.received.length, 1)
  await clock.advance(10 * 60_000)
  void pipe.say({ ...sampling, id: 's3' })
  assert.equal(channel.received.length, 2)
})

test("a task is its caller's alone, and looks to others as if there were none", async () => {
  const { pipe, join } = await shared()
  const [owner, other] = [join(), join()]
  const task = { taskId: 'task-1', status: 'working', ttl: 60_000 }
  await answered(pipe, owner.upstreamSession, toolCall('t', {}, { caller: owner.caller }), {
    result: { task },
  })
  void pipe.say({ method: 'notifications/tasks/status', params: task })
  assert.deepEqual([owner.caller.received.length, other.caller.received.length], [1, 0])
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel', 'tasks/update']) {
    const outcome = await other.upstreamSession.exchange(
      newCall({ method, params: { taskId: 'task-1' }, caller: other.caller }),
    )
    assert.ok(outcome.kind === 'answered')
    assert.equal((outcome.result.value.error as Json).code, -32602)
    assert.equal(pipe.sent(method).length, 0)
    void owner.upstreamSession.exchange(
      newCall({ method, params: { taskId: 'task-1' }, caller: owner.caller }),
    )
    assert.equal(pipe.sent(method).length, 1)
  }
})

test("a task's progress reaches its caller under the caller's own token, until its result has come", async () => {
  const { pipe, join } = await shared()
  const [owner, other] = [join(), join()]
  const begin = async (taskId: string, { caller, upstreamSession } = owner) => {
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"${taskId}!"}}}`
    const call = newCall({ method: 'tools/call', text, caller })
    await answered(pipe, upstreamSession, call, { result: { task: { taskId, status: 'working' } } })
    return lastId(pipe)
  }
  const told = () => owner.caller.of('notifications/progress').map(({ value }) => value.params)
  const progress = (progressToken: unknown) =>
    void pipe.say({ method: 'notifications/progress', params: { progressToken, progress: 1 } })
  const tokens = [await begin('a'), await begin('b'), await begin('c')]
  void other.upstreamSession.exchange(toolCall('t', {}, { caller: other.caller }))
  tokens.forEach(progress)
  assert.deepEqual(
    told(),
    ['a!', 'b!', 'c!'].map((progressToken) => ({ progressToken, progress: 1 })),
  )
  void pipe.say({ method: 'notifications/tasks/status', params: { taskId: 'a', status: 'completed' } })
  const get = newCall({ method: 'tasks/get', params: { taskId: 'b' }, caller: owner.caller })
  await answered(pipe, owner.upstreamSession, get, { result: { taskId: 'b', status: 'failed' } })
  tokens.forEach(progress)
  assert.equal(told().length, 6, 'progress may be queued behind the result')
  for (const taskId of ['a', 'b']) {
    const wait = newCall({ method: 'tasks/result', params: { taskId }, caller: owner.caller })
    await answered(pipe, owner.upstreamSession, wait, { result: { content: [] } })
  }
  tokens.forEach(progress)
  assert.equal(told().length, 7)
  await owner.upstreamSession.close()
  tokens.forEach(progress)
  assert.deepEqual([told().length, other.caller.received], [7, []])
  // A caller keeps the tokens of its latest thousand tasks.
  const first = await begin('first', other)
  for (let n = 1; n <= 1_000; n++) await begin(`task-${n}`, other)
  progress(first)
  progress(lastId(pipe))
  assert.equal(other.caller.received.length, 1)
})

test('a list of tasks holds those of its caller', async () => {
  const { pipe, join } = await shared()
  const [owner, other] = [join(), join()]
  const tasks = [{ taskId: 'a' }, { taskId: 'b' }, { taskId: 'c' }]
  for (const [{ upstreamSession, caller }, task] of [
    [owner, tasks[0]],
    [other, tasks[1]],
    [owner, tasks[2]],
  ] as const) {
    await answered(pipe, upstreamSession, toolCall('t', {}, { caller }), { result: { task } })
  }
  const list = newCall({ method: 'tasks/list', caller: owner.caller })
  const outcome = await answered(pipe, owner.upstreamSession, list, { result: { tasks } })
  assert.ok(outcome.kind === 'answered')
  const own = { tasks: [{ taskId: 'a' }, { taskId: 'c' }] }
  assert.deepEqual((JSON.parse(outcome.result.text) as Json).result, own)
  assert.deepEqual(outcome.result.value.result, own)
})

test("while a task runs, a message without a task may be for the task's caller", async () => {
  const { pipe, join } = await shared()
  const [owner, other] = [join(), join()]
  const task = { taskId: 'task-1', status: 'working' }
  await answered(pipe, owner.upstreamSession, toolCall('t', {}, { caller: owner.caller }), {
    result: { task },
  })
  const channel = new TestChannel()
  void other.upstreamSession.exchange(toolCall('t', {}, { caller: other.caller, channel }))
  void pipe.say(sampling)
  assert.deepEqual([channel.received, owner.caller.received], [[], []])
  const related = { _meta: { 'io.modelcontextprotocol/related-task': { taskId: 'task-1' } } }
  void pipe.say({ ...sampling, id: 's2', params: related })
  assert.deepEqual([channel.received.length, owner.caller.received.length], [0, 1])
  void pipe.say({ method: 'notifications/tasks/status', params: { ...task, status: 'completed' } })
  void pipe.say({ ...sampling, id: 's3' })
  assert.equal(channel.received.length, 1)
})

test('the end of an elicitation is told to the client that was sent to its page', async () => {
  const { pipe, join } = await shared()
  const [asked, required, other] = [join(), join(), join()]
  void asked.upstreamSession.exchange(toolCall('t', {}, { caller: asked.caller }))
  const params = { mode: 'url', elicitationId: 'e-1', url: 'https://example.com', message: 'go' }
  void pipe.say({ id: 'e1', method: 'elicitation/create', params })
  void pipe.say({ id: lastId(pipe), result: {} })
  await answered(pipe, required.upstreamSession, toolCall('t', {}, { caller: required.caller }), {
    error: { code: -32042, message: 'go', data: { elicitations: [{ elicitationId: 'e-2' }] } },
  })
  for (const elicitationId of ['e-1', 'e-2', 'e-3'])
    void pipe.say({ method: 'notifications/elicitation/complete', params: { elicitationId } })
  const heard = (caller: TestCaller) =>
    caller.of('notifications/elicitation/complete').map(({ value }) => (value.params as Json).elicitationId)
  assert.deepEqual(
    [asked, required, other].map(({ caller }) => heard(caller)),
    [['e-1'], ['e-2'], []],
  )
})

test('changes of a resource reach those who subscribed to it or to what it is part of', async () => {
  const { pipe, join } = await shared()
  const joined = [join(), join(), join()] as const
  await answered(pipe, joined[0].upstreamSession, subscribe('file:///a'))
  await answered(pipe, joined[1].upstreamSession, subscribe('file:///b'))
  await answered(pipe, joined[2].upstreamSession, subscribe('file:///a'), {
    error: { code: 1, message: 'no' },
  })
  for (const uri of ['file:///a', 'file:///a/part', 'file:///ab', 'file:///b', 'file:///c'])
    void pipe.say(updated(uri))
  const got = joined.map(({ caller }) =>
    caller.received.map(({ message }) => (message.value.params as Json).uri),
  )
  assert.deepEqual(got, [['file:///a', 'file:///a/part'], ['file:///b'], []])
})

test('changes of lists reach everybody who is there', async () => {
  const { pipe, join } = await shared()
  const [one, two, gone] = [join(), join(), join()]
  await gone.upstreamSession.close()
  for (const list of ['tools', 'prompts', 'resources'])
    void pipe.say({ method: `notifications/${list}/list_changed` })
  assert.deepEqual(
    [one, two, gone].map(({ caller }) => caller.received.length),
    [3, 3, 0],
  )
})
