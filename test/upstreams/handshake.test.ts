import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { capableClient, TestCaller } from '../support/caller.ts'
import { linked, openOn } from '../support/linked.ts'
import { openError } from '../../src/upstreams/pipe/handshake.ts'
import { MemoryPipe } from '../support/memory-pipe.ts'

test('the handshake says hello for the caller and tells the server that it is done', async () => {
  const { pipe, upstreamSession } = await linked()
  assert.deepEqual(pipe.sent('initialize')[0]?.params, capableClient)
  assert.equal(pipe.sent('notifications/initialized').length, 1)
  assert.equal(upstreamSession.initializeResult.value.protocolVersion, '2025-11-25')
  assert.deepEqual(JSON.parse(upstreamSession.initializeResult.text), upstreamSession.initializeResult.value)
})

test('a server that refuses the handshake is not spoken to', async () => {
  const pipe = new MemoryPipe({ error: { code: -32000, message: 'no room' } })
  await assert.rejects(openOn(pipe), { reason: 'upstream_refused', message: /no room/, sent: false })
  assert.ok(pipe.isClosed)
})

test('a server of an unknown version is not spoken to', async () => {
  const pipe = new MemoryPipe({ result: { protocolVersion: '1999-01-01', capabilities: {} } })
  await assert.rejects(openOn(pipe), { reason: 'upstream_refused', message: /1999-01-01/ })
  assert.ok(pipe.isClosed)
})

test('a handshake can be given up', async () => {
  const pipe = new MemoryPipe('none')
  const patience = new AbortController()
  const opening = openOn(pipe, new TestCaller(), patience.signal)
  await setImmediate()
  const reason = gatewayError('attempt_timeout', 'too slow')
  patience.abort(reason)
  await assert.rejects(opening, reason)
  assert.ok(pipe.isClosed)
})

test('a server that goes away during the handshake is unavailable, and nothing was sent', async () => {
  const pipe = new MemoryPipe('none')
  const opening = openOn(pipe)
  await setImmediate()
  pipe.end()
  await assert.rejects(opening, { reason: 'upstream_unavailable', sent: false })
})

test('a call that waited for a server which broke off the handshake could not reach it, by reason and code', () => {
  const error = openError(gatewayError('upstream_disconnected', 'the process exited', { sent: true }))
  assert.deepEqual(error, gatewayError('upstream_unavailable', 'the process exited'))
  const refused = gatewayError('upstream_refused', 'no', { sent: true })
  assert.deepEqual(openError(refused), { ...refused, sent: false })
  assert.equal(openError(new Error('x')).code, 1500)
})
