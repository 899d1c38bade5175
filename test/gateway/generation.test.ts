import assert from 'node:assert/strict'
import { test } from 'node:test'
import { config as schema } from '../../src/config/schema/schema.ts'
import { createEvents } from '../../src/gateway/events.ts'
import { compileGeneration } from '../../src/gateway/generation.ts'
import { liveWith } from '../support/live.ts'
import type { GatewayGeneration } from '../../src/registry/generation.ts'
import type { Server } from '../../src/registry/server.ts'
import { Intents } from '../../src/telemetry/intents.ts'
import { TaskCalls } from '../../src/telemetry/task-calls.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { UnfinishedReplies } from '../../src/upstreams/unfinished-replies.ts'
import { toolCall } from '../support/caller.ts'
import { defaultLimits } from '../support/default-limits.ts'
import { testPolicyContext } from '../support/policy-context.ts'
import { silent } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { noExperiments } from '../support/no-experiments.ts'
import { noChaos } from '../support/no-faults.ts'
import { noRecorder } from '../support/no-recorder.ts'

const url = 'http://127.0.0.1:1/mcp'

function setUp() {
  const clock = new ManualClock()
  const metrics = createMetrics()
  const context = testPolicyContext(clock)
  /** The servers whose chains were built: each chain asks for its bulkhead. */
  const built: string[] = []
  const { state } = context
  const ofGeneration = state.ofGeneration.bind(state)
  state.ofGeneration = () => {
    const states = ofGeneration()
    const get = states.get.bind(states)
    states.get = (key, create) => {
      if (key.kind === 'bulkhead') built.push(key.server)
      return get(key, create)
    }
    return states
  }
  const parts = {
    clock,
    load: { detached: 0 },
    log: silent,
    metrics,
    chaos: noChaos,
    experiments: noExperiments,
    replies: new UnfinishedReplies(defaultLimits.replies, () => undefined),
    intents: new Intents({ clock, metrics }),
    taskCalls: new TaskCalls(clock),
    tracing: undefined,
    recorder: noRecorder,
    context,
    events: createEvents(),
  }
  const compile = (
    servers: Readonly<Record<string, object>>,
    previous?: GatewayGeneration,
    renew?: ReadonlySet<string>,
    defaults: object = {},
  ) =>
    compileGeneration(schema.parse({ mcpServers: servers, policies: { defaults } }), previous, parts, renew)
  return { clock, built: () => built, compile }
}

const tool: ReturnType<Server['entries']>[number] = {
  key: 'look',
  value: { name: 'look' },
  text: '{"name":"look"}',
  fingerprint: '',
  hasUi: false,
  isWider: false,
  isAmbiguous: false,
}

/** Counts how often a server is closed from here on. */
function closes(server: Server | undefined): () => number {
  let count = 0
  const close = server!.close.bind(server)
  server!.close = () => {
    count++
    return close()
  }
  return () => count
}

test('a server whose connections are the same is taken over, and any other is made anew', () => {
  const { compile } = setUp()
  const first = compile({ a: { url }, b: { url }, c: { url } })
  const second = compile(
    { c: { url }, b: { url, connections: 5 }, a: { url, health: { every: '5s' } } },
    first,
    new Set(['c']),
  )
  assert.equal(second.servers.get('a'), first.servers.get('a'))
  assert.notEqual(second.servers.get('b'), first.servers.get('b'))
  assert.notEqual(second.servers.get('c'), first.servers.get('c'))
  assert.deepEqual([...second.servers.keys()], ['c', 'b', 'a'])
})

test('a disabled server does not exist for calls', () => {
  const { compile } = setUp()
  assert.deepEqual([...compile({ a: { url, disabled: true }, b: { url } }).servers.keys()], ['b'])
})

test('a server that was removed ends with the last generation that used it', () => {
  const { clock, compile } = setUp()
  const live = liveWith(compile({ a: { url }, b: { url } }), clock)
  const [a, b] = [closes(live.current.servers.get('a')), closes(live.current.servers.get('b'))]
  const call = live.enter()
  live.swap(compile({ a: { url }, b: { url } }, live.current))
  live.swap(compile({ b: { url } }, live.current))
  assert.deepEqual([a(), b()], [0, 0])
  call.release()
  assert.deepEqual([a(), b()], [1, 0])
})

test('a server that comes back while its last call is under way is a new one', () => {
  const { clock, compile } = setUp()
  const live = liveWith(compile({ a: { url } }), clock)
  const old = live.current.servers.get('a')
  const closed = closes(old)
  const call = live.enter()
  live.swap(compile({}, live.current))
  live.swap(compile({ a: { url } }, live.current))
  assert.notEqual(live.current.servers.get('a'), old)
  assert.equal(closed(), 0)
  call.release()
  assert.equal(closed(), 1)
})

test('a call to a server that is not there fails, and was not sent', async () => {
  const { compile } = setUp()
  const { mesh } = compile({}, undefined, undefined, { retry: false })
  const outcome = await mesh.serviceFor('gone', 'tools/call', 't')(toolCall('t', {}, { server: 'gone' }))
  assert.equal(outcome.kind === 'failed' && outcome.error.reason, 'upstream_unavailable')
})

test('compiling a config does not change the servers taken over', () => {
  const { compile } = setUp()
  const first = compile({ a: { url } })
  const second = compile({ a: { url, tools: { exclude: ['x'] }, deliver: 'tool_result' } }, first)
  const a = second.servers.get('a')
  assert.equal(a, first.servers.get('a'))
  assert.deepEqual([a?.allows('x'), a?.config.deliver], [true, 'protocol_error'])
})

test('the chains of calls are built before other policies are in force, and when they are needed where the policies are the same', () => {
  const { built, compile } = setUp()
  const servers = { a: { url }, b: { url } }
  const by = (ratio: number, previous?: GatewayGeneration) =>
    compile(servers, previous, undefined, { breaker: { ratio } })
  const first = by(0.5)
  for (const server of first.servers.values()) server.entries = () => [tool]
  const second = by(0.5, first)
  assert.deepEqual(built(), [])
  by(0.4, second)
  assert.deepEqual(built(), ['a', 'b'])
  second.mesh.serviceFor('a', 'tools/call', 'look')
  assert.deepEqual(built(), ['a', 'b', 'a'])
})

test('calls of an older config may take as long as their deadline, and a quarter of an hour at least', () => {
  const { compile } = setUp()
  const patienceOf = (defaults: object) => compile({ a: { url } }, undefined, undefined, defaults).patienceMs
  assert.equal(patienceOf({}), 900_000)
  assert.equal(patienceOf({ deadline: false }), 900_000)
  assert.equal(patienceOf({ deadline: { total: '1h' } }), 4_200_000)
  assert.equal(patienceOf({ deadline: { total: '24d' } }), 24 * 86_400_000 + 600_000)
  const extended = { total: '1m', onProgress: 'extend', maxTotalTimeout: '1h' }
  assert.equal(patienceOf({ deadline: extended }), 4_200_000)
})
