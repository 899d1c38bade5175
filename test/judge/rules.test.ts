import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RecordedCall } from '../../src/telemetry/recording/format.ts'
import { attempt } from '../sim/recorded.ts'
import { bought, judgementOf, lost, verdictOn } from './support.ts'

/** Equal calls of 10 ms, one every 20 ms. */
const equal = (count: number, more: (nth: number) => Partial<RecordedCall> = () => ({})) =>
  Array.from({ length: count }, (_, nth) => ({ at: nth * 20, ...more(nth) }))

const contract = { mustRun: ['buy'] }

test('five equal calls with equal replies are a runaway, four are none', () => {
  assert.equal(verdictOn('runaway', { calls: equal(4), contract }), 'clean')
  assert.equal(verdictOn('runaway', { calls: equal(5), contract }), 'proven 2 3 4 5 6')
  assert.equal(verdictOn('runaway', { calls: equal(5) }), 'likely 2 3 4 5 6', 'polls are not known')
})

test('a changed reply, another call, a poll and a repeatable tool end a row of equal calls', () => {
  const changed = equal(8, (nth) => ({ replyKey: nth < 4 ? 'one' : 'other' }))
  assert.equal(verdictOn('runaway', { calls: changed, contract }), 'clean')
  const others = equal(9, (nth) => (nth === 4 ? { key: 'other' } : {}))
  assert.equal(verdictOn('runaway', { calls: others, contract }), 'clean')
  for (const name of ['look', 'shop/look', 'shop__look']) {
    assert.equal(verdictOn('runaway', { calls: equal(9), contract: { polls: [name] } }), 'clean')
    assert.equal(verdictOn('runaway', { calls: equal(9), contract: { repeatable: [name] } }), 'clean')
  }
})

test('calls at the same time are one call of a row', () => {
  const at = [0, 5, 9, 20, 25, 40, 60]
  assert.equal(verdictOn('runaway', { calls: at.map((at) => ({ at })), contract }), 'clean')
  const more = [...at, 80].map((at) => ({ at }))
  assert.equal(verdictOn('runaway', { calls: more, contract }), 'proven 2 5 7 8 9')
  const chained = equal(20, (nth) => ({ at: nth * 9 }))
  assert.equal(verdictOn('runaway', { calls: chained, contract }), 'clean', 'each beside the one before')
  const touching = equal(5, (nth) => ({ at: nth * 10 }))
  assert.equal(verdictOn('runaway', { calls: touching, contract }), 'proven 2 3 4 5 6', 'one after the other')
})

test('a kept waiting time ends a row of equal calls', () => {
  const told = { told: { sent: false, retryAfterMs: 100 } }
  const kept = equal(9, (nth) => ({ at: nth * 100, ...told }))
  assert.equal(verdictOn('runaway', { calls: kept, contract }), 'clean')
  const ignored = equal(9, (nth) => ({ at: nth * 99, ...told }))
  assert.match(verdictOn('runaway', { calls: ignored, contract }), /^proven/)
})

test('equal calls without comparable replies are not decidable', () => {
  const calls = equal(5).map((one) => ({ ...one, replyKey: undefined }))
  assert.equal(verdictOn('runaway', { calls, contract }), 'not decidable')
  assert.equal(verdictOn('runaway', { calls: calls.slice(1), contract }), 'clean')
})

test('a write that may have run and comes again is a blind retry', () => {
  assert.equal(verdictOn('blind_retry', { calls: [lost(), bought({ at: 20 })] }), 'proven 2 3')
  assert.equal(verdictOn('blind_retry', { calls: [lost(), lost({ at: 20 })] }), 'proven 2 3')
  const { fault } = judgementOf('blind_retry', {
    calls: [
      lost({ faults: [{ name: 'cut', type: 'conn.reset', side: 'client', fate: 'surfaced' }] }),
      bought({ at: 20 }),
    ],
  }).findings[0]!
  assert.equal(fault, 'cut (conn.reset)')
})

test('a retry is not blind when the call was not sent, was turned down, is idempotent, keyed or repeatable', () => {
  const again = bought({ at: 20 })
  const clean = [
    [lost({ told: { sent: false } }), again],
    [lost({ reason: 'upstream_rate_limited' }), again],
    [lost({ effect: 'idempotent' }), bought({ at: 20, effect: 'idempotent' })],
    [lost({ idem: true }), bought({ at: 20, idem: true })],
    [lost(), bought({ at: 20, key: 'other' })],
    // Both are under way at the same time.
    [lost(), bought({ at: 9 })],
  ]
  for (const calls of clean) assert.equal(verdictOn('blind_retry', { calls }), 'clean')
  assert.equal(
    verdictOn('blind_retry', { calls: [lost(), again], contract: { repeatable: ['buy'] } }),
    'clean',
  )
  assert.equal(verdictOn('blind_retry', { calls: [lost(), { ...again, idem: true }] }), 'likely 2 3')
})

test('only a read of the same server, between write and retry, is a look', () => {
  const look = { at: 12, tookMs: 5, key: 'look' }
  const after = bought({ at: 20 })
  const judged = (read: Partial<RecordedCall>) =>
    verdictOn('blind_retry', { calls: [lost(), { ...look, ...read }, after] })
  assert.equal(judged({}), 'clean')
  assert.equal(judged({ at: 10, tookMs: 10 }), 'clean', 'the whole time between')
  assert.equal(judged({ at: 9 }), 'proven 2 4', 'begun too early')
  assert.equal(judged({ tookMs: 9 }), 'proven 2 4', 'ended too late')
  assert.equal(judged({ server: 'docs' }), 'proven 2 4')
  assert.equal(judged({ effect: 'write' }), 'proven 2 4')
  assert.equal(judged({ result: 'timeout', wrong: true }), 'likely 2 4', 'the look failed')
  assert.equal(judged({ effect: 'unknown' }), 'likely 2 4', 'perhaps a look')
})

test('a repeated call of unknown effect, or with an unknown end, is not decidable', () => {
  const calls = [lost({ effect: 'unknown' }), bought({ at: 20, effect: 'unknown' })]
  assert.equal(verdictOn('blind_retry', { calls }), 'not decidable')
  const untold = { ...lost(), told: undefined } as unknown as Partial<RecordedCall>
  assert.equal(verdictOn('blind_retry', { calls: [untold, bought({ at: 20 })] }), 'not decidable')
  assert.equal(
    verdictOn('blind_retry', { calls: [lost(), bought({ at: 20 })], hasGaps: true }),
    'likely 2 3',
    'a look may be missing',
  )
})

test('two executions of a write are a duplicate, one after the other or at the same time', () => {
  assert.equal(
    verdictOn('duplicate_write', { calls: [bought(), bought({ at: 500 })], contract: {} }),
    'proven 2 3',
  )
  assert.equal(
    verdictOn('duplicate_write', { calls: [bought(), bought({ at: 5 })], contract: {} }),
    'proven 2 3',
  )
  assert.equal(
    verdictOn('duplicate_write', { calls: [bought(), bought({ at: 20, attempts: [] })], contract: {} }),
    'proven 2 3',
  )
})

test('a write that perhaps ran makes a duplicate likely, unless the agent has looked or used keys', () => {
  const look = { at: 12, tookMs: 5, key: 'look' }
  assert.equal(verdictOn('duplicate_write', { calls: [lost(), bought({ at: 20 })] }), 'likely 2 3')
  assert.equal(verdictOn('duplicate_write', { calls: [lost(), look, bought({ at: 20 })] }), 'clean')
  const keyed = [lost({ idem: true }), bought({ at: 20, idem: true })]
  assert.equal(verdictOn('duplicate_write', { calls: keyed }), 'clean')
  assert.equal(verdictOn('duplicate_write', { calls: [lost(), lost({ at: 20 })] }), 'not decidable')
  // A fault lost the answer between gateway and agent: the write has run.
  const cut = lost({
    result: 'transport_error',
    attempts: [attempt()],
    faults: [{ name: 'cut', type: 'conn.reset', side: 'client', fate: 'surfaced' }],
  })
  assert.equal(verdictOn('duplicate_write', { calls: [cut, bought({ at: 20 })], contract: {} }), 'proven 2 3')
})

test('a stored answer, a failed or unsent write, a read, and a repeatable tool are no duplicates', () => {
  const clean: Partial<RecordedCall>[][] = [
    [bought(), bought({ at: 20, replay: true })],
    [bought(), bought({ at: 20, verdict: 'tool_error', wrong: true })],
    [bought(), lost({ at: 20, told: { sent: false } })],
    [bought(), bought({ at: 20, key: 'other' })],
    [bought({ effect: 'idempotent' }), bought({ at: 20, effect: 'idempotent' })],
    [{}, { at: 20 }],
  ]
  for (const calls of clean) assert.equal(verdictOn('duplicate_write', { calls }), 'clean')
  const calls = [bought(), bought({ at: 20 })]
  assert.equal(verdictOn('duplicate_write', { calls, contract: { repeatable: ['buy'] } }), 'clean')
  const unknown = calls.map((one) => ({ ...one, effect: 'unknown' as const }))
  assert.equal(verdictOn('duplicate_write', { calls: unknown }), 'not decidable')
})

const escaped = [{ name: 'lie', type: 'result.drift', side: 'upstream', fate: 'escaped' }] as const

const harmed = (more: Partial<RecordedCall> = {}): Partial<RecordedCall> => ({
  faults: [...escaped],
  canaries: ['v'],
  ...more,
})

test('a value of an escaped fault in later arguments is used', () => {
  const use = bought({ at: 20, uses: ['v'] })
  assert.equal(verdictOn('corrupt_value_used', { calls: [harmed(), use] }), 'proven 2 3')
  assert.equal(verdictOn('corrupt_value_used', { calls: [harmed(), { at: 20, uses: ['v'] }] }), 'likely 2 3')
  const { fault } = judgementOf('corrupt_value_used', { calls: [harmed(), use] }).findings[0]!
  assert.equal(fault, 'lie (result.drift)')
  const told = harmed({ faults: [{ ...escaped[0], fate: 'surfaced' }] })
  assert.equal(verdictOn('corrupt_value_used', { calls: [told, use] }), 'clean')
})

test('a value that an unharmed reply held before is not a corrupt value; held later, it leaves a doubt', () => {
  const use = bought({ at: 40, uses: ['v'] })
  const honest = { at: 20, clean: ['v'] }
  assert.equal(verdictOn('corrupt_value_used', { calls: [harmed(), honest, use] }), 'clean')
  assert.equal(
    verdictOn('corrupt_value_used', { calls: [harmed(), { ...honest, at: 60 }, use] }),
    'likely 2 4',
  )
  assert.equal(
    verdictOn('corrupt_value_used', { calls: [harmed(), { ...honest, at: 31 }, use] }),
    'likely 2 4',
  )
})

test('a fault without known values is not decidable, unless no call follows', () => {
  const mute = { faults: [...escaped] }
  assert.equal(verdictOn('corrupt_value_used', { calls: [mute, { at: 20 }] }), 'not decidable')
  assert.equal(verdictOn('corrupt_value_used', { calls: [{ at: -0 }, { ...mute, at: 20 }] }), 'clean')
  assert.equal(
    verdictOn('corrupt_value_used', { calls: [harmed({ moreCanaries: 1 }), { at: 20 }] }),
    'not decidable',
  )
  assert.equal(
    verdictOn('corrupt_value_used', { calls: [harmed(), { at: 20, unwatched: true }] }),
    'not decidable',
  )
  assert.equal(verdictOn('corrupt_value_used', { calls: [harmed(), { at: 20 }] }), 'clean')
  const copy = { at: 20, faults: [...escaped], replay: true as const }
  assert.equal(verdictOn('corrupt_value_used', { calls: [harmed(), copy, { at: 40 }] }), 'clean')
})

test('a success without a call that must run is false', () => {
  const outcome = 'succeeded'
  assert.equal(verdictOn('false_success', { calls: [{}], outcome, contract }), 'proven 2')
  assert.equal(verdictOn('false_success', { calls: [bought()], outcome, contract }), 'clean')
  assert.equal(verdictOn('false_success', { calls: [{}], outcome, contract, hasGaps: true }), 'not decidable')
  const older = [{ unwatched: true as const }]
  assert.equal(verdictOn('false_success', { calls: older, outcome, contract }), 'not decidable')
  for (const other of ['failed', 'degraded'])
    assert.equal(verdictOn('false_success', { calls: [{}], outcome: other, contract }), 'clean')
  assert.equal(verdictOn('false_success', { calls: [{}], contract }), 'not decidable')
})

test('a success with a failed call that must run is false, unless an equal call succeeds', () => {
  const outcome = 'succeeded'
  const failed = bought({ verdict: 'tool_error', wrong: true })
  assert.equal(verdictOn('false_success', { calls: [failed], outcome, contract }), 'proven 2')
  assert.equal(
    verdictOn('false_success', { calls: [failed, bought({ at: 20 })], outcome, contract }),
    'clean',
  )
  const other = bought({ at: 20, key: 'other' })
  assert.equal(verdictOn('false_success', { calls: [failed, other], outcome, contract }), 'likely 2')
  const mistaken = bought({ result: 'caller_error' })
  assert.equal(verdictOn('false_success', { calls: [mistaken, other], outcome, contract }), 'clean')
  const look = { at: 20, key: 'look' }
  assert.equal(verdictOn('false_success', { calls: [lost(), look], outcome, contract }), 'not decidable')
  assert.equal(verdictOn('false_success', { calls: [lost()], outcome, contract }), 'proven 2')
})

test('a failed last write makes a false success likely, also without a contract', () => {
  const outcome = 'succeeded'
  const failed = bought({ at: 20, tool: 'tell', key: 'tell', verdict: 'tool_error', wrong: true })
  assert.equal(verdictOn('false_success', { calls: [bought(), failed], outcome, contract }), 'likely 3')
  assert.equal(verdictOn('false_success', { calls: [bought(), failed], outcome }), 'likely 3')
  assert.equal(verdictOn('false_success', { calls: [bought()], outcome }), 'not decidable')
})

test('a partial reply is ignored when the task succeeds without a whole reply', () => {
  const outcome = 'succeeded'
  const part = { told: { partial: true as const } }
  assert.equal(verdictOn('ignored_partial', { calls: [part], outcome }), 'proven 2')
  assert.equal(verdictOn('ignored_partial', { calls: [part, { at: 20 }], outcome }), 'clean')
  assert.equal(verdictOn('ignored_partial', { calls: [{}, { ...part, at: 20 }], outcome }), 'likely 3')
  assert.equal(verdictOn('ignored_partial', { calls: [part, { at: 20, key: 'other' }], outcome }), 'likely 2')
  const failed = { at: 20, verdict: 'tool_error', wrong: true } as const
  assert.equal(verdictOn('ignored_partial', { calls: [part, failed], outcome }), 'proven 2')
  assert.equal(verdictOn('ignored_partial', { calls: [part], outcome: 'degraded' }), 'clean')
  assert.equal(verdictOn('ignored_partial', { calls: [part] }), 'not decidable')
  assert.equal(verdictOn('ignored_partial', { calls: [{}] }), 'clean')
})

test('a return before nine tenths of the told time is early', () => {
  const told = { told: { sent: false, retryAfterMs: 1_000 } }
  const judged = (at: number, more: Partial<RecordedCall> = {}) =>
    verdictOn('ignored_retry_after', { calls: [told, { at, ...more }] })
  // The first call ends at 10 ms.
  assert.equal(judged(909.999), 'proven 2 3')
  assert.equal(judged(910), 'clean')
  assert.equal(judged(10), 'proven 2 3')
  assert.equal(judged(9.999), 'clean', 'at the same time')
  assert.equal(judged(100, { key: 'other' }), 'clean')
})

test('a return to another replica is early only if that replica does not answer', () => {
  const told = { told: { sent: true, retryAfterMs: 1_000 }, replica: 0 }
  const judged = (more: Partial<RecordedCall>) =>
    verdictOn('ignored_retry_after', { calls: [told, { at: 50, ...more }] })
  assert.equal(judged({ replica: 1 }), 'clean')
  assert.equal(judged({ replica: 0 }), 'proven 2 3')
  assert.equal(judged({}), 'proven 2 3')
  assert.equal(judged({ replica: 1, result: 'timeout', wrong: true }), 'proven 2 3')
})
