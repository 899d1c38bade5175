import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { toolCall } from '../support/caller.ts'
import { allLists } from './discovered.ts'
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

test('its way for plain HTTP is opened once, only if its entry allows that, and closed with it', async () => {
  assert.equal(testServer().server.plainHttp, undefined)
  const { server } = testServer({ passthrough: true })
  const way = server.plainHttp
  assert.ok(way)
  assert.equal(server.plainHttp, way)
  await server.close()
  assert.equal(way.pool.destroyed, true)
})
