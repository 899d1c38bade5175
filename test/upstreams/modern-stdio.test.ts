import assert from 'node:assert/strict'
import { extname } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gatewayError } from '../../src/mesh/errors.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import type { UpstreamSession } from '../../src/upstreams/upstream.ts'
import { newCall, TestCaller, TestChannel, toolCall } from '../support/caller.ts'
import { fixtureCommand } from '../support/fixture.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { open, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

const path = new URL(`../fixtures/modern-stdio${extname(import.meta.url)}`, import.meta.url)
const modern = (...args: string[]) => ({ command: process.execPath, args: [fileURLToPath(path), ...args] })

/** A tiny legacy server; `unknown` handles unknown requests. */
const legacy = (unknown: string) => ({
  command: process.execPath,
  args: [
    '-e',
    `const answer = (id, rest) => console.log(JSON.stringify({ jsonrpc: '2.0', id, ...rest }))
    const initializeResult = { protocolVersion: '2025-11-25', capabilities: {}, serverInfo: { name: 'old', version: '1' } }
    const results = { initialize: initializeResult, ping: {}, pid: { pid: process.pid } }
    require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, method } = JSON.parse(line)
      if (id === undefined) return
      if (results[method]) answer(id, { result: results[method] })
      else { ${unknown} }
    })`,
  ],
})

const form = '{"action":"accept","content":{"name":"Zoë","color":"blue","ok":true}}'

function said(outcome: Outcome): unknown {
  assert.ok(outcome.kind === 'answered', outcome.kind === 'answered' ? '' : outcome.error.message)
  const { content } = outcome.result.value.result as { content: [{ text: string }] }
  return JSON.parse(content[0].text)
}

const who = (upstreamSession: UpstreamSession, caller: TestCaller) =>
  upstreamSession.exchange(toolCall('who', {}, { caller })).then(said) as Promise<{
    pid: number
    capabilities: object
  }>

test('a modern server is found out, and says in each request who asks', async (t) => {
  const upstream = stdioUpstream(t, modern())
  const able = new TestCaller()
  const plain = new TestCaller({ initializeParams: { capabilities: { sampling: {} } } })
  const [first, second] = await Promise.all([open(upstream, able), open(upstream, plain)])
  const { modern: verdict } = upstream.eras()
  assert.deepEqual([verdict?.speaks, verdict?.decidedBy], [true, 'probe'])
  assert.deepEqual(first.initializeResult.value.serverInfo, { name: 'modern-stdio', version: '1.0.0' })
  const [one, two] = await Promise.all([who(first, able), who(second, plain)])
  assert.equal(one.pid, two.pid)
  assert.deepEqual(one.capabilities, able.initializeParams.capabilities)
  assert.deepEqual(two.capabilities, { sampling: {} })
})

test('a caller that leaves a modern process leaves it to the others', async (t) => {
  const upstream = stdioUpstream(t, modern())
  const [leaver, stayer] = [new TestCaller(), new TestCaller()]
  const [left, stayed] = await Promise.all([open(upstream, leaver), open(upstream, stayer)])
  const waiting = left.exchange(toolCall('wait', {}, { caller: leaver }))
  await who(stayed, stayer)
  await left.close()
  assert.equal((await waiting).kind, 'failed')
  assert.equal(left.ended.aborted, true)
  assert.ok(await who(stayed, stayer))
})

test('a modern process of its own ends with its conversation', async (t) => {
  const upstream = stdioUpstream(t, { ...modern(), sharing: 'per_session' })
  const [caller, other] = [new TestCaller(), new TestCaller()]
  const [upstreamSession, second] = [await open(upstream, caller), await open(upstream, other)]
  const { pid } = await who(upstreamSession, caller)
  assert.notEqual((await who(second, other)).pid, pid)
  process.kill(pid, 'SIGKILL')
  await until('the conversation is over', () => upstreamSession.ended.aborted)
  assert.equal(second.ended.aborted, false)
})

test('progress comes under the token of its call', async (t) => {
  const caller = new TestCaller()
  const upstreamSession = await open(stdioUpstream(t, modern()), caller)
  const progress = async (progressToken: string | number) => {
    const channel = new TestChannel()
    const params = { name: 'stream', arguments: { steps: 2 }, _meta: { progressToken } }
    assert.equal(
      said(await upstreamSession.exchange(newCall({ method: 'tools/call', params, caller, channel }))),
      2,
    )
    const told = channel.of('notifications/progress')
    assert.deepEqual(
      told.map(({ value }) => (value.params as { progressToken: unknown }).progressToken),
      [progressToken, progressToken],
    )
  }
  await Promise.all([progress('mine'), progress(0)])
})

test('a server is told of a call that was given up', async (t) => {
  const caller = new TestCaller()
  const upstreamSession = await open(stdioUpstream(t, modern()), caller)
  const [channel, patience] = [new TestChannel(), new AbortController()]
  const params = { name: 'wait', arguments: {}, _meta: { progressToken: 1 } }
  const parts = { caller, channel, signal: patience.signal }
  const waiting = upstreamSession.exchange(newCall({ method: 'tools/call', params, ...parts }))
  await until('the call runs', () => channel.received.length > 0)
  patience.abort(gatewayError('attempt_timeout', 'too slow'))
  const outcome = await waiting
  assert.ok(outcome.kind === 'failed' && outcome.error.sent)
  const cancelled = () => upstreamSession.exchange(toolCall('cancelled', {}, { caller })).then(said)
  await until('the server knows of the cancellation', async () => (await cancelled()) === 1)
})

test('questions go to the caller whose call they belong to, whoever else calls', async (t) => {
  const upstream = stdioUpstream(t, modern())
  const [questioned, busy] = [new TestCaller(), new TestCaller()]
  const [upstreamSession, other] = await Promise.all([open(upstream, questioned), open(upstream, busy)])
  const patience = new AbortController()
  const waiting = other.exchange(toolCall('wait', {}, { caller: busy, signal: patience.signal }))
  const channel = new TestChannel({ 'elicitation/create': form })
  const outcome = await upstreamSession.exchange(
    toolCall('ask', { kinds: ['form'] }, { caller: questioned, channel, id: 'mine' }),
  )
  assert.deepEqual(said(outcome), { form: JSON.parse(form) as unknown })
  assert.ok(outcome.kind === 'answered' && outcome.result.value.id === 'mine')
  patience.abort(gatewayError('cancelled', 'enough'))
  await waiting
})

test('a caller that knows results which ask for input gets them as they are', async (t) => {
  const caller = new TestCaller({ era: 'modern' })
  const upstreamSession = await open(stdioUpstream(t, modern()), caller)
  const channel = new TestChannel()
  const outcome = await upstreamSession.exchange(toolCall('ask', { kinds: ['form'] }, { caller, channel }))
  assert.ok(outcome.kind === 'answered')
  assert.equal((outcome.result.value.result as { resultType: unknown }).resultType, 'input_required')
  assert.equal(channel.received.length, 0)
})

test('changes reach each caller that listens, once, and resources only those who subscribed', async (t) => {
  const upstream = stdioUpstream(t, modern())
  const callers = [new TestCaller(), new TestCaller()] as const
  const upstreamSessions = await Promise.all(callers.map((caller) => open(upstream, caller)))
  const [first, second] = [upstreamSessions[0] ?? assert.fail(), upstreamSessions[1] ?? assert.fail()]
  for (const upstreamSession of upstreamSessions) upstreamSession.listen()
  await second.exchange(newCall({ method: 'ping', caller: callers[1] }))
  await first.exchange(
    newCall({ method: 'resources/subscribe', params: { uri: 'test://a' }, caller: callers[0] }),
  )
  await second.exchange(toolCall('touch', { uri: 'test://a' }, { caller: callers[1] }))
  await second.exchange(toolCall('change_tools', {}, { caller: callers[1] }))
  const changes = (caller: TestCaller) => caller.of('notifications/tools/list_changed')
  await until('both callers know of the change', () => callers.every((caller) => changes(caller).length > 0))
  assert.equal(callers[0].of('notifications/resources/updated').length, 1)
  assert.equal(callers[1].received.length, 1)
  assert.ok(!callers[0].received.some(({ message }) => message.text.includes('subscriptionId')))
})

test('a subscription in whose course each modern process dies is forgotten', async (t) => {
  const clock = new ManualClock()
  const program = `require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method } = JSON.parse(line)
    if (method === 'subscriptions/listen') process.exit(1)
    const result = { supportedVersions: ['2026-07-28'], capabilities: { resources: { subscribe: true } } }
    if (method === 'server/discover') console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
  })`
  const upstream = stdioUpstream(t, { command: process.execPath, args: ['-e', program], clock })
  const caller = new TestCaller()
  const first = await open(upstream, caller)
  void first.exchange(newCall({ method: 'resources/subscribe', params: { uri: 'test://a' }, caller }))
  await clock.advance(10)
  await until('the first process has died', () => first.ended.aborted)
  await clock.advance(1_000)
  const second = await open(upstream, caller)
  assert.equal(second.isAskedToRemember, true)
  await until('the second process has died', () => second.ended.aborted)
  await clock.advance(30_000)
  assert.equal((await open(upstream, caller)).isAskedToRemember, false)
})

test('a server of both eras is spoken to in the configured one', async (t) => {
  const upstream = stdioUpstream(t, { ...modern('both'), era: 'legacy' })
  const upstreamSession = await open(upstream)
  assert.equal(upstreamSession.initializeResult.value.protocolVersion, '2025-11-25')
  assert.equal(upstream.eras().legacy?.decidedBy, 'config')
  // The clock stands still, because a slow start on a busy machine would count as silence, and silence as an answer.
  const found = await open(stdioUpstream(t, { ...modern('both'), clock: new ManualClock() }))
  assert.equal(found.initializeResult.value.protocolVersion, '2026-07-28')
})

test('a legacy server that refuses the question is initialized, in the same process', async (t) => {
  const upstream = stdioUpstream(t, fixtureCommand('contract', 'stdio'))
  const upstreamSession = await open(upstream)
  assert.deepEqual(Object.keys(upstream.eras()), ['legacy'])
  assert.ok((await upstreamSession.exchange(newCall({ method: 'ping' }))).kind === 'answered')
  await assert.rejects(open(stdioUpstream(t, { ...fixtureCommand('contract', 'stdio'), era: 'modern' })), {
    reason: 'upstream_refused',
  })
})

test('a legacy server that says nothing is initialized after two seconds', async (t) => {
  const clock = new ManualClock()
  const upstream = stdioUpstream(t, { ...legacy(''), clock })
  const opening = open(upstream)
  // Two timers: for the whole start, and for the first request.
  await until('the server has the question', () => clock.pending > 1)
  await clock.advance(2_000)
  const upstreamSession = await opening
  assert.equal(upstreamSession.initializeResult.value.protocolVersion, '2025-11-25')
  assert.deepEqual(Object.keys(upstream.eras()), ['legacy'])
})

test('a legacy server that ends over the question is started again, and not asked a second time', async (t) => {
  const upstream = stdioUpstream(t, { ...legacy('process.exit(1)'), sharing: 'per_session' })
  for (const caller of [new TestCaller(), new TestCaller()]) {
    const upstreamSession = await open(upstream, caller)
    assert.ok((await upstreamSession.exchange(newCall({ method: 'pid', caller }))).kind === 'answered')
  }
  assert.deepEqual(Object.keys(upstream.eras()), ['legacy'])
})
