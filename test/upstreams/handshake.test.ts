import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'
import type { Layer } from '../../src/mesh/call.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { withInjected } from '../../src/mesh/injected.ts'
import { capableClient, TestCaller } from '../support/caller.ts'
import { linked, openOn } from '../support/linked.ts'
import { silent } from '../support/log.ts'
import { ManualClock } from '../support/manual-clock.ts'
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

test('the error of a handshake that faults made fail names them apart from its words', async () => {
  const faults: Layer = (next) => async (call) => withInjected(await next(call), ['a'])
  const error = { code: -32000, message: 'no room' }
  for (const [answer, message] of [
    [{ error }, /no room$/],
    [{ result: { protocolVersion: '1999-01-01', capabilities: {} } }, /1999-01-01 of the protocol/],
  ] as const) {
    const opening = openOn(new MemoryPipe(answer), new TestCaller(), undefined, silent, { faults })
    await assert.rejects(opening, { reason: 'upstream_refused', message, injected: ['a'] })
    await assert.rejects(openOn(new MemoryPipe(answer)), (cause: object) => !('injected' in cause))
  }
  const disconnected = { ...gatewayError('upstream_disconnected', 'gone'), injected: ['a'] }
  assert.deepEqual(openError(disconnected).injected, ['a'])
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

/** A server of unknown era, two seconds after its start: the gateway has sent both first requests. */
async function slowServer() {
  const pipe = new MemoryPipe('none')
  const clock = new ManualClock()
  const opening = openOn(pipe, new TestCaller(), undefined, silent, { clock, era: 'auto' })
  await setImmediate()
  await clock.advance(2_000)
  const [discover] = pipe.sent('server/discover')
  const [initialize] = pipe.sent('initialize')
  return { pipe, clock, opening, discover: discover?.id, initialize: initialize?.id }
}

const unsupported = { error: { code: -32602, message: 'Unsupported protocol version: 2025-11-25' } }

for (const [how, isModernFirst] of [
  ['', true],
  [', the refusal first', false],
] as const)
  test(`a modern server that starts slowly is taken for one though both of its answers come at once${how}`, async () => {
    const { pipe, opening, discover, initialize } = await slowServer()
    const modern = { id: discover, result: { supportedVersions: ['2026-07-28'], capabilities: {} } }
    const refusal = { id: initialize, ...unsupported }
    for (const answer of isModernFirst ? [modern, refusal] : [refusal, modern]) void pipe.say(answer)
    assert.equal((await opening).era, 'modern')
  })

test('a server that refuses the handshake and does not know the other question is not waited for longer than that takes', async () => {
  const { pipe, clock, opening, initialize } = await slowServer()
  const refused = assert.rejects(opening, { reason: 'upstream_refused', message: /Unsupported/ })
  void pipe.say({ id: initialize, ...unsupported })
  await setImmediate()
  await clock.advance(2_000)
  await refused
  assert.ok(pipe.isClosed)
})
