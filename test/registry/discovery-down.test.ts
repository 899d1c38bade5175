import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cancellation } from '../../src/mesh/cancel.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { injectedFaults, withInjected } from '../../src/mesh/injected.ts'
import type { Layer, Outcome } from '../../src/mesh/call.ts'
import { allLists, discovered, oneTool, PROBE_MS, TIMEOUT_MS } from './discovered.ts'

const unavailable = gatewayError('upstream_unavailable', 'cannot connect')

test('a server that is down is tried again after a pause that doubles, up to half a minute', async () => {
  const { start, clock, upstream, told } = discovered()
  upstream.refusal = unavailable
  await start()
  const pauses: number[] = []
  for (let round = 0; round < 7; round++) {
    const [before, since] = [upstream.attempts, clock.now()]
    while (upstream.attempts === before) await clock.advance(100)
    pauses.push(clock.now() - since)
  }
  assert.deepEqual(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
  assert.ok(told.every((word) => word === 'upstream_unavailable'))
})

test('a server that answers the handshake and then fails is not asked in a frenzy', async () => {
  const { start, clock, upstream, told } = discovered(() => ({ error: { code: -32603, message: 'broken' } }))
  await start()
  await clock.advance(7_500)
  assert.deepEqual(told, ['bad_reply', 'bad_reply', 'bad_reply', 'bad_reply'])
  assert.equal(upstream.attempts, 4)
  assert.ok(upstream.upstreamSessions.every((upstreamSession) => upstreamSession.ended.aborted))
})

const delay = {
  name: 'delay',
  type: 'conn.latency',
  side: 'upstream',
  attempt: 1,
  status: 'applied',
} as const

test('the error of a server names exactly the faults that made the error', async () => {
  /** Delays each request, and ends each with an outcome made by faults of these names. */
  const hit =
    (names: readonly string[], outcome?: Outcome): Layer =>
    (next) =>
    async (call) => {
      injectedFaults.note(call.record, [delay])
      return withInjected(outcome ?? (await next(call)), names)
    }
  const broken = () => ({ error: { code: -32603, message: 'Internal error' } })
  const hungUp: Outcome = { kind: 'failed', error: gatewayError('bad_reply', 'it hung up') }
  for (const [script, faults, says] of [
    [broken, undefined, 'tools/list failed: Internal error'],
    [broken, hit([]), 'tools/list failed: Internal error'],
    [broken, hit(['fault-4']), 'tools/list failed: Internal error (injected: fault-4)'],
    [oneTool, hit([], hungUp), 'it hung up'],
    [oneTool, hit(['fault-4', 'b'], hungUp), 'it hung up (injected: fault-4, b)'],
  ] as const) {
    const { start, messages } = discovered(script, undefined, faults)
    await start()
    assert.deepEqual(messages, [says])
  }
})

test('the error of a server that cannot be opened names the faults that made it, or hold the handshake', async () => {
  const refused = gatewayError('upstream_refused', 'initialize failed: no')
  for (const [refusal, says] of [
    [refused, 'initialize failed: no'],
    [{ ...refused, injected: ['a'] }, 'initialize failed: no (injected: a)'],
  ] as const) {
    const { start, upstream, messages } = discovered(oneTool, undefined, undefined, () => ['b'])
    upstream.refusal = refusal
    await start()
    assert.deepEqual(messages, [says])
  }
  const { start, clock, upstream, messages } = discovered(oneTool, undefined, undefined, () => ['b'])
  upstream.gate = new Promise(() => {})
  await start()
  await clock.advance(TIMEOUT_MS)
  const late = 'discovery took longer than 10s (mcpServers.s.timeouts.discovery) (injected: b)'
  assert.deepEqual(messages, [late])
})

test('a conversation whose goodbye takes its time does not change the pause', async () => {
  const { start, clock, upstream } = discovered((_, __, upstreamSession) => {
    const close = upstreamSession.close.bind(upstreamSession)
    if (upstreamSession.asked.length === 1)
      upstreamSession.close = () => close().then(() => clock.sleep(500, new Cancellation()))
    return { error: { code: -32603, message: 'broken' } }
  })
  await start()
  await clock.advance(1_499)
  assert.equal(upstream.attempts, 1)
  await clock.advance(1)
  assert.equal(upstream.attempts, 2)
})

test('a server that is up again begins anew, pause included', async () => {
  const { start, clock, upstream, told, asked } = discovered()
  upstream.refusal = unavailable
  await start()
  await clock.advance(3_000)
  upstream.refusal = undefined
  await clock.advance(4_000)
  assert.equal(told.at(-1), 'up')
  assert.deepEqual(asked(), allLists)
  await clock.advance(1_000)
  upstream.refusal = unavailable
  upstream.upstreamSession.end()
  await clock.advance(0)
  assert.equal(told.at(-1), 'upstream_unavailable')
  const { attempts } = upstream
  await clock.advance(1_000)
  assert.equal(upstream.attempts, attempts + 1)
})

test('a server that names a time is not asked earlier, nor earlier than usual', async () => {
  for (const [retryAfterMs, pauseMs] of [
    [5_000, 5_000],
    [0, 1_000],
    // No more than five minutes of a day are granted.
    [86_400_000, 300_000],
  ] as const) {
    const { start, clock, upstream } = discovered()
    upstream.refusal = gatewayError('upstream_status', 'HTTP 503', { retryAfterMs })
    await start()
    await clock.advance(pauseMs - 1)
    assert.equal(upstream.attempts, 1)
    await clock.advance(1)
    assert.equal(upstream.attempts, 2)
  }
})

test('a round that takes too long is over, and the server is down', async () => {
  const { start, clock, told } = discovered((method, params, upstreamSession) =>
    method === 'prompts/list' ? new Promise(() => {}) : oneTool(method, params, upstreamSession),
  )
  await start()
  await clock.advance(TIMEOUT_MS - 1)
  assert.deepEqual(told, [])
  await clock.advance(1)
  assert.deepEqual(told, ['attempt_timeout'])
})

test('a ping that fails takes the server down', async () => {
  const { start, clock, told } = discovered((method, params, upstreamSession) =>
    method === 'ping'
      ? gatewayError('upstream_disconnected', 'broke')
      : oneTool(method, params, upstreamSession),
  )
  await start()
  await clock.advance(PROBE_MS)
  assert.deepEqual(told, ['up', 'upstream_disconnected'])
})
