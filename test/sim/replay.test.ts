import assert from 'node:assert/strict'
import { test } from 'node:test'
import { policiesOf } from '../../src/sim/policy-choices.ts'
import type { Recording } from '../../src/sim/recording.ts'
import { compareColumns } from '../../src/sim/replay-figures.ts'
import { playOf, replay, type ReplayOptions } from '../../src/sim/replay.ts'
import type { RecordedCall } from '../../src/telemetry/recording/format.ts'
import { attempt, call, failure, header } from './recorded.ts'

const recordingOf = (calls: readonly RecordedCall[]): Pick<Recording, 'header' | 'calls'> => ({
  header: header(),
  calls,
})

const under = (name: string, defaults: object) => ({ name, policies: policiesOf({ defaults }) })

const noRetries = under('no retries', { retry: { maxRetries: 0 } })
const retrying = under('retries', {
  retry: { maxRetries: 2, base: '20ms', cap: '20ms', waitForProof: false },
})

const play = (calls: readonly RecordedCall[], options: Partial<ReplayOptions> = {}) =>
  replay(recordingOf(calls), { choice: noRetries, seed: 1, ...options })

/** Calls without retries; every fifth failed. */
const mixed = Array.from({ length: 200 }, (_, n) =>
  n % 5 === 0
    ? call({
        at: n * 50,
        task: `task ${n % 40}`,
        key: `${n}`,
        result: 'transport_error',
        wrong: true,
        reason: 'upstream_status',
        tookMs: 30.25,
        overheadMs: 0.25,
        attempts: [failure({ tookMs: 30 })],
      })
    : call({
        at: n * 50,
        task: `task ${n % 40}`,
        key: `${n}`,
        tookMs: 10 + n / 8,
        attempts: [attempt({ tookMs: 10 + n / 8 })],
      }),
)

test('under the same policies all calls end as they did, in the same time', async () => {
  const { calls, drawn } = await play(mixed)
  assert.equal(drawn, 0)
  const micros = (ms: number) => Math.round(ms * 1_000) / 1_000
  const rounded = calls.map((one) => ({ ...one, at: micros(one.at), tookMs: micros(one.tookMs) }))
  assert.deepEqual(rounded, playOf(recordingOf(mixed)).calls)
})

test('each kind of end is replayed as the same kind', async () => {
  const ends: readonly Partial<RecordedCall>[] = [
    { attempts: [attempt({ verdict: 'tool_error' })], wrong: true },
    { attempts: [attempt({ verdict: 'schema_invalid' })], wrong: true },
    {
      attempts: [attempt({ outcome: 'rpc_error', verdict: 'rpc_error', code: -32603 })],
      result: 'rpc_error',
      wrong: true,
    },
    {
      attempts: [attempt({ outcome: 'caller_error', verdict: 'rpc_error', code: -32602 })],
      result: 'caller_error',
    },
    // The arguments broke the schema, and the tool said so.
    {
      attempts: [attempt({ outcome: 'caller_error', verdict: 'tool_error' })],
      invalid: true,
      result: 'caller_error',
    },
    { attempts: [failure({ outcome: 'cancelled', reason: 'cancelled' })], result: 'cancelled' },
  ]
  const calls = ends.map((end, n) => call({ at: n * 1_000, key: `${n}`, task: `${n}`, ...end }))
  // Some attempt took longer than the cut-off attempt.
  calls.push(call({ at: 9_000, task: '9', tookMs: 80, attempts: [attempt({ tookMs: 80 })] }))
  assert.deepEqual((await play(calls)).calls, playOf(recordingOf(calls)).calls)
})

test('attempts that took place are taken as they were, and only those that did not are drawn', async () => {
  const retried = call({
    tookMs: 45,
    waitedMs: 5,
    retries: 1,
    attempts: [failure({ tookMs: 30 }), attempt({ number: 2, at: 35, tookMs: 10 })],
  })
  const under = await play([retried], { choice: retrying })
  const [same] = under.calls
  assert.deepEqual([same!.result, same!.attempts, same!.retries, under.drawn], ['returned', 2, 1, 0])
  // Except for the wait, which the policy draws at random.
  assert.ok(same!.tookMs >= 40 && same!.tookMs <= 60, `${same!.tookMs}`)
  const [without] = (await play([retried])).calls
  assert.deepEqual([without!.result, without!.attempts, without!.tookMs], ['transport_error', 1, 30])
})

test('further attempts are drawn from those near in time: a bad spell is one again', async () => {
  const spell = (from: number, isBad: boolean) =>
    Array.from({ length: 60 }, (_, n) =>
      call({
        at: from + n * 100,
        task: `${from}/${n}`,
        key: `${from}/${n}`,
        ...((isBad || n === 30) && { result: 'transport_error', wrong: true, attempts: [failure()] }),
      }),
    )
  const policies = {
    retry: { maxRetries: 1, base: '1ms', cap: '1ms', budget: { floor: 1_000 } },
    breaker: false,
  }
  const { calls } = await play([...spell(0, false), ...spell(600_000, true)], {
    choice: under('x', policies),
  })
  assert.equal(calls[30]!.isWrong, false)
  assert.equal(calls.slice(60).filter(({ isWrong }) => isWrong).length, 60)
})

test('a call ended by the gateway takes longer when not ended, as long as others of its kind', async () => {
  const cut = call({
    result: 'timeout',
    wrong: true,
    reason: 'attempt_timeout',
    tookMs: 100,
    attempts: [failure({ outcome: 'timeout', reason: 'attempt_timeout', tookMs: 100 })],
  })
  const others = [20, 50, 300].map((tookMs, n) =>
    call({ at: 1_000 * (n + 1), task: `${n}`, tookMs, attempts: [attempt({ tookMs })] }),
  )
  const short = under('short', { retry: false, attemptTimeout: { timeout: 100 } })
  const [again] = (await play([cut, ...others], { choice: short })).calls
  assert.deepEqual([again!.result, again!.tookMs], ['timeout', 100])
  const [longer] = (await play([cut, ...others])).calls
  assert.deepEqual([longer!.result, longer!.tookMs], ['returned', 300])
})

test('an agent keeps its thinking times, and its parallel calls their times', async () => {
  const slow = call({ at: 0, tookMs: 500, attempts: [attempt({ tookMs: 500 })] })
  const beside = call({ at: 100, key: 'beside', tookMs: 10 })
  const next = call({ at: 540, key: 'next', tookMs: 10 })
  const short = under('short', { retry: false, attemptTimeout: { timeout: 200 } })
  const { calls } = await play([slow, beside, next], { choice: short })
  assert.deepEqual(
    calls.map(({ at, result, tookMs }) => [at, result, tookMs]),
    [
      [0, 'timeout', 200],
      [100, 'returned', 10],
      [240, 'returned', 10],
    ],
  )
})

test('a hedge is no further try: it begins before any other attempt of its call has failed', async () => {
  // Retries fail again; near the slow call, first attempts are quick.
  const retried = Array.from({ length: 40 }, (_, n) =>
    call({
      at: 20_000 + n * 100,
      task: `retried ${n}`,
      result: 'transport_error',
      wrong: true,
      tookMs: 30,
      retries: 1,
      attempts: [failure(), failure({ number: 2, at: 20 })],
    }),
  )
  const quick = Array.from({ length: 400 }, (_, n) => call({ at: n * 10, task: `quick ${n}` }))
  const slow = call({ at: 2_000, key: 'slow', tookMs: 500, attempts: [attempt({ tookMs: 500 })] })
  const recorded = [...retried, ...quick, slow].sort((one, other) => one.at - other.at)
  const choice = under('hedged', { retry: false, breaker: false, hedge: { after: 50 } })
  const { calls } = await play(recorded, { choice, seed: 2 })
  const { result, attempts, tookMs } = calls[recorded.indexOf(slow)]!
  assert.deepEqual([result, attempts, tookMs], ['returned', 2, 60])
})

test('servers and tools may have any names', async () => {
  const named = ['__proto__', 'constructor', 'toString'].flatMap((server, s) =>
    ['__proto__', 'constructor', 'valueOf'].map((tool, n) =>
      call({ at: s * 300 + n * 100, task: `${s}/${n}`, server, tool }),
    ),
  )
  const { calls } = await play(named, { choice: retrying })
  assert.deepEqual(calls, playOf(recordingOf(named)).calls)
})

test('the same seed gives the same bytes, and another one other draws', async () => {
  const text = async (seed: number) => {
    const recording = recordingOf(mixed)
    const plays = [await replay(recording, { choice: retrying, seed })]
    return JSON.stringify(compareColumns(mixed, playOf(recording), [{ name: 'retries', plays }]))
  }
  assert.equal(await text(3), await text(3))
  assert.notEqual(await text(3), await text(4))
})

test('figures of what was recorded are those of its calls', () => {
  const { recorded, difference } = compareColumns(mixed, playOf(recordingOf(mixed)), [
    { name: 'again', plays: [playOf(recordingOf(mixed))] },
    { name: 'and again', plays: [playOf(recordingOf(mixed))] },
  ])
  const { tcsr, eta, blastRadius, attempts, retries } = recorded.figures
  assert.deepEqual(
    [tcsr, eta, attempts, retries].map(({ estimate }) => estimate),
    [0.8, 0.8, 1, 0],
  )
  assert.equal(blastRadius.estimate, 8 / 40)
  assert.ok(tcsr.low < 0.8 && tcsr.high > 0.8 && tcsr.low > 0.6)
  // Of the same tasks: nothing differs.
  assert.deepEqual(difference?.figures.tcsr, { estimate: 0, low: 0, high: 0 })
})

test('columns are compared play by play, those with the same seed', () => {
  const played = playOf(recordingOf(mixed))
  const plays = [played, { ...played, calls: played.calls.map((one) => ({ ...one, isWrong: true })) }]
  const { difference } = compareColumns(mixed, played, [
    { name: 'one', plays },
    { name: 'the same', plays },
  ])
  assert.deepEqual(difference?.figures.tcsr, { estimate: 0, low: 0, high: 0 })
})

test('where nothing failed, or everything did, shares have the interval of so many tasks', () => {
  const compared = (isWrong: boolean) => {
    const calls = mixed.map((one) => ({ ...one, task: one.task ?? 'none' }))
    const played = playOf(recordingOf(calls))
    const play = { ...played, calls: played.calls.map((one) => ({ ...one, isWrong })) }
    const tasks = new Set(calls.map(({ task }) => task)).size
    const { recorded, replayed, difference } = compareColumns(calls, play, [
      { name: 'one', plays: [play] },
      { name: 'another', plays: [play] },
    ])
    return { tasks, shares: [recorded, replayed[0], difference].map((told) => told?.figures.tcsr) }
  }
  const right = compared(false)
  const wilson = 3.8415 / (right.tasks + 3.8415)
  const [recorded, replayed, difference] = right.shares
  assert.deepEqual([recorded?.estimate, recorded?.high], [1, 1])
  assert.ok(Math.abs(recorded!.low - (1 - wilson)) < 1e-4)
  assert.deepEqual(replayed, { estimate: 1, low: 1 - 5 / right.tasks, high: 1 })
  assert.equal(difference?.estimate, 0)
  assert.ok(Math.abs(difference.low + wilson) < 1e-4 && Math.abs(difference.high - wilson) < 1e-4)
  const [wrong] = compared(true).shares
  assert.deepEqual([wrong?.estimate, wrong?.low], [0, 0])
  assert.ok(Math.abs(wrong!.high - wilson) < 1e-4)
})

test('an attempt that was cut off after no time at all is drawn once, and then one that took longer', async () => {
  const short = under('short', { retry: false, attemptTimeout: { timeout: 200 } })
  const cut = call({
    task: 'cut',
    attempts: [failure({ outcome: 'cancelled', reason: 'cancelled', tookMs: 0 })],
    result: 'timeout',
  })
  const [alone] = (await play([cut], { choice: short })).calls
  assert.equal(alone?.result, 'timeout')
  const [beside] = (await play([cut, call({ task: 'other' })], { choice: short })).calls
  assert.equal(beside?.result, 'returned')
})
