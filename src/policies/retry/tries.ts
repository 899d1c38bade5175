import { z } from 'zod'
import { type Call, type CallChanges, derive, type Outcome } from '../../mesh/call.ts'
import type { Millis, Clock } from '../../mesh/clock.ts'
import { CountFact, Fact } from '../../mesh/record.ts'
import { counter, gauge } from '../../mesh/metric-spec.ts'
import type { PolicyContext, Scope, StateKind } from '../../mesh/policy.ts'
import { duration } from '../../units/duration.ts'

export const LONGEST_WINDOW_MS = 60_000

export type RetryRefusal =
  /** The call may have run, and is not known to be repeatable. */
  | 'unsafe'
  /** A byte of the answer has reached the caller. */
  | 'streaming'
  /** The call is already a caller's retry. */
  | 'inbound_attempt'
  | 'max_retries'
  /** The next try would begin after the deadline, or, without a deadline, after the longest wait. */
  | 'deadline'
  | 'server_budget'
  | 'gateway_budget'
  | 'concurrency'
  /** No other call has shown in time that the tool works again. */
  | 'no_proof'
  /** The call was to be sent again, but a limit of the gateway rejected the try. */
  | 'limited'

const retriesTotal = counter(
  'retries_total',
  'Failed calls, by whether they were sent again (`sent`) or why not, and calls that were hedged.',
  ['server', 'decision', 'arm'],
  'servers × 12 decisions × arms',
)

export const retries = new CountFact({
  about: 'How often the call was sent again after a failure.',
  log: 'retries',
  alwaysLogged: true,
  attribute: 'breakwater.retries',
  event: () => ({ decision: 'sent' }),
  counting: { metric: retriesTotal, labels: () => ({ decision: 'sent' }), by: (count) => count },
})

export const hedges = new CountFact({
  about: 'How often the call was sent once more while the first try had not come back.',
  log: 'hedges',
  alwaysLogged: true,
  attribute: 'breakwater.hedges',
  event: () => ({ decision: 'sent' }),
  counting: { metric: retriesTotal, labels: () => ({ decision: 'hedged' }), by: (count) => count },
})

export const retryRefused = new Fact<RetryRefusal | undefined>(undefined, {
  about: 'Why the last failure was not followed by another try.',
  log: 'retryRefused',
  event: (refusal) => ({ decision: 'refused', reason: String(refusal) }),
  counting: { metric: retriesTotal, labels: (refusal) => ({ decision: String(refusal) }) },
})

/** Returns a budget for a share of the calls in (0, 1]. Divides the floor too, or arms would multiply it. */
export const dividedBudget = (budget: BudgetSettings, share: number): BudgetSettings => ({
  ...budget,
  floor: budget.floor * share,
})

/** The name of the budget of the whole gateway, in place of a server's. */
const GATEWAY = ''

const RETRY_BUDGET = 'retry-budget'

export const retryBudget: StateKind<RetryBudget> = {
  kind: RETRY_BUDGET,
  isBudget: true,
  gauge: {
    metric: gauge(
      'retry_budget_balance',
      "Retries that a server's budget allows now, for the default policies or for an arm; without a server, the gateway's budget.",
      ['server', 'arm'],
      '(servers + 1) × arms',
    ),
    samples: (budget) => [{ labels: {}, value: budget.snapshot().balance }],
  },
}

/** The kind of a retry. */
export interface RetryKind {
  /** The server may have worked on the call, or is overloaded. */
  readonly isCostly: boolean
  /** The server's gate or a proof of its tool releases the retry, and bounds how many are under way. */
  readonly isHeld: boolean
}

const HEDGE: RetryKind = { isCostly: true, isHeld: false }

/** The two budgets every retry needs: of its server, and of the whole gateway. */
export class RetryBudgets {
  readonly #server: RetryBudget
  readonly #gateway: RetryBudget
  readonly #terms: BudgetTerms
  /** The terms for retries that cost the server something. */
  readonly #costly: BudgetTerms

  constructor(
    { clock, state }: Pick<PolicyContext, 'clock' | 'state'>,
    { set, server }: Scope,
    terms: BudgetSettings,
  ) {
    const budgetOf = (owner: string) =>
      state.get({ kind: RETRY_BUDGET, set, server: owner }, () => new RetryBudget(clock, terms))
    this.#server = budgetOf(server)
    this.#gateway = budgetOf(GATEWAY)
    this.#terms = terms
    const { costlyRatio, ...rest } = terms
    const share = terms.ratio === 0 ? 1 : Math.min(1, costlyRatio / terms.ratio)
    this.#costly = { ...rest, ratio: terms.ratio * share, floor: terms.floor * share }
  }

  /** Notes that a call begins. */
  enter(now: Millis): void {
    this.#server.enter(now)
    this.#gateway.enter(now)
  }

  /** Notes that a call is over, with all its tries. */
  leave(): void {
    this.#server.leave()
    this.#gateway.leave()
  }

  /** Takes a retry from both budgets and returns undefined; or takes none and returns the reason. */
  reserve(now: Millis, { isCostly, isHeld }: RetryKind): RetryRefusal | undefined {
    const terms = isCostly ? this.#costly : this.#terms
    if (this.#server.balance(terms, now) < 1) return 'server_budget'
    if (this.#gateway.balance(terms, now) < 1) return 'gateway_budget'
    if (!isHeld && !this.#server.hasRoom(terms)) return 'concurrency'
    this.#server.withdraw(now)
    this.#gateway.withdraw(now)
    return undefined
  }

  /** Notes that a reserved retry is under way, or about to be. Needs a `release` later. */
  start(): void {
    this.#server.start()
    this.#gateway.start()
  }

  claim(now: Millis, kind: RetryKind = HEDGE): RetryRefusal | undefined {
    const refusal = this.reserve(now, kind)
    if (refusal === undefined) this.start()
    return refusal
  }

  /** Notes that a retry is over, or will not be sent after all. */
  release(): void {
    this.#server.release()
    this.#gateway.release()
  }
}

/** The config of the budget: the same for retries and for hedges. */
export const budgetSchema = z
  .strictObject({
    ratio: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe("Share of a window's calls that may be sent again after a quick failure, 0 to 1."),
    costlyRatio: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe(
        'Like `ratio`, but after timeouts, HTTP 429 and 503, and for hedges, where another try makes matters worse; at most `ratio`. `floor` then shrinks by the same proportion.',
      ),
    floor: z
      .number()
      .min(0)
      .max(1_000)
      .default(10)
      .describe(
        'Retries per second allowed however few calls there are. The larger of `ratio` and `floor` counts.',
      ),
    window: duration({ min: 1_000, max: LONGEST_WINDOW_MS })
      .default(10_000)
      .describe('The length of the window for calls and retries; whole seconds.'),
    concurrency: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe(
        'Share of the calls under way to a server that may be retries, 0 to 1. Waiting retries do not count.',
      ),
    leastConcurrent: z
      .int()
      .min(0)
      .max(10_000)
      .default(16)
      .describe('Retries under way to a server allowed however few calls there are.'),
  })
  .prefault({})
  .describe(
    'How much may be sent again, per server and in the whole gateway. Retries and hedges share the budget.',
  )

type BudgetSettings = z.output<typeof budgetSchema>

const ATTEMPT_HEADER = 'x-breakwater-attempt'

/** Headers in which a caller tells the number of its try. */
const inboundHeaders = [ATTEMPT_HEADER, 'x-envoy-attempt-count']

/** Returns the call as try number `attempt`. Tells HTTP servers the number, so that no server retries a retry. */
export function nextTry(call: Call, attempt: number, changes: CallChanges = {}): Call {
  changes.attempt = attempt
  if (attempt > 1) changes.headers = { ...call.headers, [ATTEMPT_HEADER]: String(attempt) }
  return derive(call, changes)
}

/** Returns whether a call arrived as a caller's retry: only the outermost layer retries, or tries multiply. */
export function isInboundRetry({ inbound }: Call): boolean {
  return inboundHeaders.some((name) => {
    const attempt = Number(inbound[name])
    return Number.isInteger(attempt) && attempt >= 2
  })
}

/** Returns the outcome of a call with several tries: when any try may have run, the call may have run. */
export function withSent(outcome: Outcome, sent: boolean): Outcome {
  if (outcome.kind !== 'failed' || !sent || outcome.error.sent) return outcome
  return { kind: 'failed', error: { ...outcome.error, sent } }
}

/** How much may be sent again. */
export interface BudgetTerms {
  /** Share of a window's calls that may be sent again. */
  readonly ratio: number
  /** Retries per second allowed however few calls there are. */
  readonly floor: number
  /** The length of the window for calls and retries, in milliseconds; rounded up to whole seconds. */
  readonly window: Millis
  /** Share of the calls under way that may be retries. */
  readonly concurrency: number
  /** Retries under way allowed however few calls there are. */
  readonly leastConcurrent: number
}

/** A budget as the admin API shows it: sums over the window of the latest terms. */
export interface BudgetSnapshot {
  /** Retries that may be sent now. */
  readonly balance: number
  readonly deposits: number
  readonly withdrawals: number
  /** Calls under way, in any try or wait between tries. */
  readonly active: number
  /** Retries and hedges of active calls, waiting for their turn or under way. */
  readonly retrying: number
}

/** The length of a bucket: a second, because floors are rates per second. */
const BUCKET_MS = 1_000
const BUCKETS = LONGEST_WINDOW_MS / BUCKET_MS

/** Added before rounding down, because products such as 0.29 × 100 are slightly too small. */
const HAIR = 1e-9

/**
 * Counts the retries that calls earn. Finagle's RetryBudget, in buckets of a second: every call deposits a share of a
 * retry, which expires with its window. Envoy's budget: retries under way are a share of calls under way. Finagle's
 * limit bounds the load in the long run. Envoy's limit works when calls become slow, and earlier deposits of fast calls
 * would allow a storm of retries.
 *
 * The floor for small traffic, which Finagle adds to the share, here counts *within* the share: a window allows
 * max(floor × window, ratio × deposits). Take a ratio of 0.2, a floor of 5/s, and a steady load of at least 25/s: a
 * server failing all calls for 30 s gets at most 1.25 × the offered load. There 20 % of the deposits is no less
 * than the floor of 5/s, so a window allows 2 s worth of load, perhaps all at once. Within 30 s there can be three such
 * bursts, and half of a fourth because windows move by whole seconds. With 2 retries per call these are 7 s worth of
 * load more: 1.23 × (1.27 × with 10 retries and nearly no backoff, without the limit of concurrency). With the sum of
 * floor and share, the load would be 1.4 × at 25/s. Below 25/s only the floor counts: a single agent gets its retries.
 *
 * The terms are not part of the state: tools of one server may have different terms, and share the counts.
 */
export class RetryBudget {
  readonly #clock: Clock
  readonly #deposits = new Float64Array(BUCKETS)
  readonly #withdrawals = new Float64Array(BUCKETS)
  #terms: BudgetTerms
  /** The latest second on the clock. */
  #second: number
  #active = 0
  #retrying = 0

  /** `terms`: the first user's terms, for the snapshot. */
  constructor(clock: Clock, terms: BudgetTerms) {
    this.#clock = clock
    this.#terms = terms
    this.#second = secondOf(clock.now())
  }

  /** Notes that a call begins, and adds its deposit. */
  enter(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#deposits[bucket] = (this.#deposits[bucket] as number) + 1
    this.#active++
  }

  leave(): void {
    this.#active--
  }

  /** Returns how many retries may be sent at `now`: a whole number, at least 0. */
  balance(terms: BudgetTerms, now: Millis): number {
    this.#terms = terms
    this.#bucket(now)
    const { ratio, floor, window } = terms
    const earned = Math.max(floor * bucketsOf(window), ratio * this.#sum(this.#deposits))
    return Math.max(0, Math.floor(earned - this.#sum(this.#withdrawals) + HAIR))
  }

  /** Returns whether another retry may be under way. */
  hasRoom({ concurrency, leastConcurrent }: BudgetTerms): boolean {
    return this.#retrying + 1 <= Math.max(leastConcurrent, concurrency * this.#active + HAIR)
  }

  /** Takes a retry; the caller has checked the limits. */
  withdraw(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#withdrawals[bucket] = (this.#withdrawals[bucket] as number) + 1
  }

  /** Notes that a retry is under way, or waits only for its backoff. */
  start(): void {
    this.#retrying++
  }

  /** Notes that a retry is over, or will not be sent after all. Its withdrawal stays. */
  release(): void {
    this.#retrying--
  }

  snapshot(): BudgetSnapshot {
    return {
      balance: this.balance(this.#terms, this.#clock.now()),
      deposits: this.#sum(this.#deposits),
      withdrawals: this.#sum(this.#withdrawals),
      active: this.#active,
      retrying: this.#retrying,
    }
  }

  /** Returns the bucket of this moment; empties the buckets of skipped seconds. */
  #bucket(now: Millis): number {
    const second = secondOf(now)
    const from = Math.max(this.#second, second - BUCKETS)
    for (let passed = from + 1; passed <= second; passed++) {
      this.#deposits[passed % BUCKETS] = 0
      this.#withdrawals[passed % BUCKETS] = 0
    }
    if (second > this.#second) this.#second = second
    return this.#second % BUCKETS
  }

  #sum(buckets: Float64Array): number {
    let sum = 0
    for (let back = 0; back < bucketsOf(this.#terms.window); back++)
      sum += buckets[(this.#second - back + BUCKETS) % BUCKETS] as number
    return sum
  }
}

function secondOf(now: Millis): number {
  return Math.floor(now / BUCKET_MS)
}

function bucketsOf(window: Millis): number {
  return Math.ceil(window / BUCKET_MS)
}
