import assert from 'node:assert/strict'
import fc from 'fast-check'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { RetryBudget, type BudgetTerms } from '../../../src/policies/retry/tries.ts'
import { TokenBucket } from '../../../src/policies/rate-limit/limit.ts'
import { Stage } from '../../policies/bulkhead/stage.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { asyncTarget, target, type Target } from '../target.ts'

const terms: fc.Arbitrary<BudgetTerms> = fc.record({
  ratio: fc.constantFrom(0, 0.2, 0.29, 1),
  floor: fc.constantFrom(0, 1, 5),
  window: fc.constantFrom(1_000, 1_500, 10_000, 60_000),
  concurrency: fc.constantFrom(0, 0.2, 1),
  leastConcurrent: fc.constantFrom(0, 1, 3),
})

const budget = asyncTarget(
  'a retry budget holds what the calls of its window have earned, less what was taken in it',
  fc.tuple(
    fc.tuple(terms, terms),
    fc.array(
      fc.tuple(
        fc.constantFrom('enter', 'enter', 'leave', 'withdraw', 'release', 'advance'),
        fc.constantFrom(0, 1, 400, 999, 1_000, 5_000, 59_999, 61_000, 200_000),
      ),
      { maxLength: 60, size: 'max' },
    ),
  ),
  async ([both, ops]) => {
    const clock = new ManualClock()
    const budget = new RetryBudget(clock, both[0])
    const entered: number[] = []
    const withdrawn: number[] = []
    let [active, retrying] = [0, 0]
    for (const [op, ms] of ops) {
      const now = clock.now()
      if (op === 'enter') {
        budget.enter(now)
        entered.push(now)
        active++
      } else if (op === 'leave' && active > 0) {
        budget.leave()
        active--
      } else if (op === 'withdraw') {
        budget.withdraw(now)
        budget.start()
        withdrawn.push(now)
        retrying++
      } else if (op === 'release' && retrying > 0) {
        budget.release()
        retrying--
      } else if (op === 'advance') await clock.advance(ms)
      for (const terms of both) {
        const seconds = Math.ceil(terms.window / 1_000)
        const oldest = Math.floor(clock.now() / 1_000) - seconds + 1
        const inWindow = (times: number[]) => times.filter((at) => Math.floor(at / 1_000) >= oldest).length
        const earned = Math.max(terms.floor * seconds, terms.ratio * inWindow(entered))
        const expected = Math.max(0, Math.floor(earned - inWindow(withdrawn) + 1e-9))
        assert.equal(budget.balance(terms, clock.now()), expected)
        const room = Math.max(terms.leastConcurrent, terms.concurrency * active + 1e-9)
        assert.equal(budget.hasRoom(terms), retrying + 1 <= room)
      }
      const seen = budget.snapshot()
      assert.deepEqual([seen.active, seen.retrying], [active, retrying])
    }
  },
)

const bucket = target(
  'a token bucket gives what a bucket that is really filled would give, and tells the exact wait',
  fc.tuple(
    fc.constantFrom(1, 3, 10, 1_000),
    fc.integer({ min: 1, max: 5 }),
    fc.array(fc.constantFrom(0, 0, 1, 7, 99, 100, 333, 1_000, 60_000), { maxLength: 60, size: 'max' }),
  ),
  ([calls, burst, pauses]) => {
    // A whole number of milliseconds for each token, so that both count exactly.
    const perTokenMs = 1_000
    const bucket = new TokenBucket({ calls, perMs: calls * perTokenMs }, burst)
    let filled = burst * perTokenMs
    let now = 0
    for (const pause of pauses) {
      now += pause
      filled = Math.min(burst * perTokenMs, filled + pause)
      assert.equal(bucket.available(now), Math.floor(filled / perTokenMs))
      const waitMs = bucket.take(now)
      assert.equal(waitMs, Math.max(0, perTokenMs - filled))
      if (waitMs === 0) filled -= perTokenMs
      else {
        assert.ok(bucket.take(now + waitMs - 0.01) > 0, 'waiting longer than told would lose tokens')
        assert.equal(filled >= perTokenMs, false)
      }
    }
  },
)

interface Sent {
  readonly id: string
  readonly tool: string
  readonly tenant: string
  readonly signal: Cancellation
  readonly sentAt: number
}

const CONCURRENT = 4
const QUEUE = 5
const MAX_WAIT_MS = 1_000
const LATE_MS = 300
/** Slots held for longer may stop counting, which other tests cover. */
const OVERDUE_MS = 5_000

const bulkhead = asyncTarget(
  'a bulkhead never runs or queues more than it may, serves tenants in turn, leaves no slot idle that somebody could use, and forgets nobody',
  fc.tuple(
    fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
    fc.array(
      fc.tuple(
        fc.constantFrom('send', 'send', 'send', 'end', 'abort', 'advance'),
        fc.nat({ max: 7 }),
        fc.constantFrom('a', 'b', 'c'),
        fc.constantFrom('x', 'y', 'z'),
      ),
      { maxLength: 50, size: 'max' },
    ),
  ),
  async ([perTool, ops]) => {
    const settings = { concurrent: CONCURRENT, queue: QUEUE, maxWait: MAX_WAIT_MS, tenantShare: 0.5 }
    const stage = new Stage({ ...settings, ...(perTool === undefined ? {} : { perTool }) })
    const sent = new Map<string, Sent>()
    let [ended, calls] = [0, 0]
    const isOver = ({ id }: Sent) => stage.outcomes.has(id)
    const running = () =>
      [...sent.values()].filter((call) => stage.started.includes(call.id) && !isOver(call))
    const waiting = () =>
      [...sent.values()].filter((call) => !stage.started.includes(call.id) && !isOver(call))
    for (const [op, n, tool, tenant] of [...ops]) {
      const [ran, waited] = [running(), waiting()]
      const startedBefore = stage.started.length
      if (op === 'send') {
        const id = `call ${calls++}`
        const signal = new Cancellation()
        sent.set(id, { id, tool, tenant, signal, sentAt: stage.clock.now() })
        // Deadlines decide nothing.
        const deadline = n === 7 ? {} : { deadline: { at: stage.clock.now() + 100 * n, reserveMs: 0 } }
        stage.send(id, { tool, tenant, signal, ...deadline })
        await stage.clock.advance(0)
      } else if (op === 'end') {
        const call = running()[n]
        if (call !== undefined) await stage.end(call.id)
      } else if (op === 'abort') {
        waiting()[n]?.signal.abort(gatewayError('cancelled', 'gave up'))
        await stage.clock.advance(0)
      } else if (stage.clock.now() + 150 * n < OVERDUE_MS) await stage.clock.advance(150 * n)

      const facts = stage.pools().at(-1)
      const [runs, waits] = [running(), waiting()]
      assert.deepEqual([facts?.running ?? 0, facts?.waiting ?? 0], [runs.length, waits.length])
      assert.ok(runs.length <= CONCURRENT && waits.length <= QUEUE)
      assert.ok(waits.every(({ sentAt }) => stage.clock.now() - sentAt <= MAX_WAIT_MS))
      for (const { tool, limit, running, waiting } of facts?.tools ?? []) {
        if (perTool !== undefined) assert.ok(running <= perTool, `${tool} runs ${running} of ${perTool}`)
        const couldRun = runs.length < CONCURRENT && running < limit
        assert.ok(waiting === 0 || !couldRun, `${tool} waits beside a free slot`)
      }
      for (const [nth, id] of stage.started.slice(startedBefore).entries()) {
        const call = sent.get(String(id)) as Sent
        if (!waited.includes(call)) continue
        const lane = waited.filter(({ tool, tenant }) => tool === call.tool && tenant === call.tenant)
        const isLate = stage.clock.now() - lane[0]!.sentAt >= LATE_MS
        assert.equal(id, (isLate ? lane.at(-1) : lane[0])?.id, `${id} is not next of its lane`)
        // Slots return singly: the tenant still counts as the holder.
        const holders = [
          ...ran,
          ...stage.started
            .slice(startedBefore)
            .slice(0, nth)
            .map((earlier) => sent.get(String(earlier)) as Sent),
        ]
        const held = (tenant: string) => holders.filter((other) => other.tenant === tenant).length
        const poorer = waits.filter(
          (other) =>
            waited.includes(other) && other.tool === call.tool && held(other.tenant) < held(call.tenant),
        )
        assert.deepEqual(poorer, [], `${id} goes before a tenant that holds less`)
      }
      ended = stage.outcomes.size
      assert.equal(ended + runs.length + waits.length, calls)
    }
    for (let left = running(); left.length > 0; left = running())
      for (const { id } of left) await stage.end(id)
    assert.equal(stage.outcomes.size, calls)
    assert.ok(stage.pools().every(({ running, waiting, tenants }) => running + waiting + tenants === 0))
  },
)

export const limitTargets: readonly Target[] = [budget, bucket, bulkhead]
