import assert from 'node:assert/strict'
import fc from 'fast-check'
import { Cancellation } from '../../../src/mesh/cancel.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { DeadlineQueue, isBefore } from '../../../src/policies/state/deadline-queue.ts'
import { RetryBudget, type BudgetTerms } from '../../../src/policies/state/retry-budget.ts'
import { TokenBucket } from '../../../src/policies/state/token-bucket.ts'
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
        assert.ok(bucket.take(now + waitMs - 0.01) > 0, 'to be told too long a wait is to lose tokens')
        assert.equal(filled >= perTokenMs, false)
      }
    }
  },
)

const queue = target(
  'a queue serves the earliest deadline first, of equal ones who came first, whoever leaves it meanwhile',
  fc.array(fc.tuple(fc.constantFrom('push', 'push', 'shift', 'remove'), fc.nat({ max: 6 })), {
    maxLength: 60,
  }),
  (ops) => {
    const queue = new DeadlineQueue<{ at: number; order: number; place: number }>()
    const model: { at: number; order: number; place: number }[] = []
    for (const [order, [op, n]] of ops.entries()) {
      if (op === 'push') {
        const item = { at: n === 6 ? Infinity : n, order, place: -1 }
        queue.push(item)
        model.push(item)
        model.sort((a, b) => (isBefore(a, b) ? -1 : 1))
      } else {
        const [item] = model.splice(op === 'shift' ? 0 : n % Math.max(1, model.length), 1)
        if (item !== undefined) {
          assert.equal(queue.remove(item), true)
          assert.equal(queue.remove(item), false)
        }
      }
      assert.equal(queue.size, model.length)
      assert.equal(queue.first, model[0])
      assert.equal(queue.last, model.at(-1))
    }
  },
)

interface Sent {
  readonly id: string
  readonly tool: string
  readonly tenant: string
  readonly at: number
  readonly signal: Cancellation
  readonly sentAt: number
}

const CONCURRENT = 4
const QUEUE = 5
const MAX_WAIT_MS = 1_000

const bulkhead = asyncTarget(
  'a bulkhead never runs or queues more than it may, leaves no slot idle that somebody could use, and forgets nobody',
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
      const waited = waiting()
      const startedBefore = stage.started.length
      if (op === 'send') {
        const id = `call ${calls++}`
        const signal = new Cancellation()
        const at = n === 7 ? Infinity : stage.clock.now() + 100 * n
        sent.set(id, { id, tool, tenant, at, signal, sentAt: stage.clock.now() })
        const deadline = at === Infinity ? {} : { deadline: { at, reserveMs: 0 } }
        stage.send(id, { tool, tenant, signal, ...deadline })
        await stage.clock.advance(0)
      } else if (op === 'end') {
        const call = running()[n]
        if (call !== undefined) await stage.end(call.id)
      } else if (op === 'abort') {
        waiting()[n]?.signal.abort(gatewayError('cancelled', 'gave up'))
        await stage.clock.advance(0)
      } else await stage.clock.advance(150 * n)

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
      for (const id of stage.started.slice(startedBefore)) {
        const call = sent.get(String(id)) as Sent
        const overtaken = waits.filter(
          (other) =>
            waited.includes(other) &&
            waited.includes(call) &&
            other.tool === call.tool &&
            other.tenant === call.tenant &&
            other.at < call.at,
        )
        assert.deepEqual(overtaken, [], `${id} overtakes an earlier deadline of its own tenant`)
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

export const limitTargets: readonly Target[] = [budget, bucket, queue, bulkhead]
