import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Layer } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { toolCall } from '../support/caller.ts'
import { ScriptedUpstream } from '../support/scripted-upstream.ts'
import { allLists, oneTool } from './discovered.ts'
import { testServer } from './test-server.ts'

test('closing ends conversations and replicas once, and nothing goes on behind it', async () => {
  const { server, upstream, clock, states, start } = testServer()
  await start()
  await server.send(toolCall('a'))
  await Promise.all([server.close(), server.close()])
  await clock.advance(1_000_000)
  assert.equal(upstream.closed, 1)
  assert.ok(upstream.upstreamSessions.every((upstreamSession) => upstreamSession.ended.aborted))
  assert.deepEqual(states, ['up'])
  assert.equal(clock.pending, 0)
})

test('a server that is down is closed without its grace', async () => {
  const { server, upstream, clock, start } = testServer()
  upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
  await start()
  await server.close()
  assert.equal(clock.pending, 0)
})

test('discovery has a conversation of its own', async () => {
  const { server, upstream, start } = testServer()
  await start()
  await server.send(toolCall('a'))
  assert.equal(upstream.upstreamSessions.length, 2)
  assert.deepEqual(upstream.upstreamSessions[0]?.asked.toSorted(), allLists)
  assert.deepEqual(upstream.upstreamSessions[1]?.asked, ['tools/call'])
  assert.equal(server.upstreamSessions.size, 2)
})

test('the plain HTTP route of a server is opened once, only if its entry allows the route, and closed with the server', async () => {
  assert.equal(testServer().server.plainHttp, undefined)
  const { server } = testServer({ passthrough: true })
  const way = server.plainHttp
  assert.ok(way)
  assert.equal(server.plainHttp, way)
  await server.close()
  assert.equal(way.pool.destroyed, true)
})

test('a fault that keeps the gateway from a server which is there does not shorten the pauses of discovery', async () => {
  const unreachable = gatewayError('upstream_unavailable', 'cannot connect')
  const upstream = Object.assign(new ScriptedUpstream(oneTool), { probe: () => Promise.resolve(true) })
  const refuse: Layer = () => (call) => {
    server.faultedAttempts.failed(call, unreachable)
    return Promise.resolve({ kind: 'failed', error: unreachable })
  }
  const { server, clock, start } = testServer({}, [upstream], { faults: refuse })
  await start()
  const begun: number[] = []
  for (let at = 0; at < 16_000; at += 50) {
    if (upstream.attempts > begun.length) begun.push(clock.now())
    await clock.advance(50)
    // Calls of agents meet the same fault.
    server.faultedAttempts.failed(toolCall('a'), unreachable)
  }
  assert.deepEqual(
    begun.slice(1).map((at, index) => at - begun[index]!),
    [1_000, 2_000, 4_000, 8_000],
  )
})
