import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { gatewayError } from '../../src/mesh/errors.ts'
import { recordedLog } from '../support/log.ts'
import { isAlive, memoryInUse } from '../support/processes.ts'
import { ask, open, pidOf, result, stdioUpstream } from '../support/stdio.ts'

const MIB = 1024 ** 2
/** Interval between two samples of the memory, in milliseconds. */
const LOOK_MS = 50
const tooSlow = gatewayError('attempt_timeout', 'too slow')

test('a stopped process ends no call before its time, and holds up no other process', async (t) => {
  const upstream = stdioUpstream(t, { sharing: 'per_session' })
  const [stopped, running] = await Promise.all([open(upstream), open(upstream)])
  const pid = await pidOf(stopped)
  process.kill(pid, 'SIGSTOP')
  const patience = new AbortController()
  const waiting = ask(stopped, 'ping', {}, { signal: patience.signal })
  const patient = ask(stopped, 'ping')
  assert.deepEqual(await result(ask(running, 'ping')), {})
  patience.abort(tooSlow)
  assert.deepEqual(await waiting, { kind: 'failed', error: { ...tooSlow, sent: true } })
  process.kill(pid, 'SIGCONT')
  assert.deepEqual(await result(patient), {})
})

test('a stopped process can be ended', async (t) => {
  const upstream = stdioUpstream(t)
  const pid = await pidOf(await open(upstream))
  process.kill(pid, 'SIGSTOP')
  await upstream.close()
  assert.equal(isAlive(pid), false)
})

test('a line of 100 MB ends its call, is never in memory, and holds up no other call for good', async (t) => {
  const upstreamSession = await open(stdioUpstream(t, { maxReply: MIB }))
  const before = memoryInUse()
  let peak = 0
  const large = ask(upstreamSession, 'raw/size', { bytes: 100 * MIB })
  const small = ask(upstreamSession, 'ping')
  // Each sample collects garbage, and must leave time for the reading.
  const next = () => Promise.race([small.then(() => true), setTimeout(LOOK_MS, false)])
  while (!(await next())) peak = Math.max(peak, memoryInUse())
  const failed = await large
  assert.ok(failed.kind === 'failed')
  assert.deepEqual([failed.error.reason, failed.error.sent], ['reply_too_large', true])
  assert.deepEqual(await result(small), {})
  assert.ok(peak - before < 16 * MIB, `${peak - before} bytes`)
})

test('binary noise is skipped', async (t) => {
  const { log, lines } = recordedLog()
  const upstreamSession = await open(stdioUpstream(t, { log, maxReply: MIB }))
  for (const bytes of [1, 10_000, MIB]) await result(ask(upstreamSession, 'raw/noise', { bytes }))
  assert.deepEqual(await result(ask(upstreamSession, 'ping')), {})
  const skipped = lines.filter(({ msg }) => msg === 'skipped output that is not JSON-RPC')
  // One line a minute, out of thousands.
  assert.equal(skipped.length, 1)
})

test('a server that does not read costs the memory of the calls that wait, and no more', async (t) => {
  const upstream = stdioUpstream(t)
  const upstreamSession = await open(upstream)
  await result(ask(upstreamSession, 'raw/deaf'))
  const before = memoryInUse()
  let sent = 0
  for (let i = 0; i < 300; i++) {
    const patience = new AbortController()
    const call = ask(upstreamSession, 'raw/mirror', { padding: 'x'.repeat(MIB) }, { signal: patience.signal })
    patience.abort(tooSlow)
    const outcome = await call
    assert.ok(outcome.kind === 'failed' && outcome.error.reason === 'attempt_timeout')
    if (outcome.error.sent) sent++
  }
  assert.ok(sent <= 2, `${sent} calls count as sent`)
  assert.ok(memoryInUse() - before < 16 * MIB, `${memoryInUse() - before} bytes`)
})
