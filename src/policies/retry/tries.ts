import { z } from 'zod'
import { type Call, type CallChanges, derive, type Outcome } from '../../mesh/call.ts'
import type { Millis, Clock } from '../../mesh/clock.ts'
import { CountFact, Fact } from '../../mesh/record.ts'
import { counter, gauge } from '../../mesh/metric-spec.ts'
import type { PolicyContext, Scope, StateKind } from '../../mesh/policy.ts'
import { duration } from '../../units/duration.ts'

/** Longest window, in milliseconds. */
export const LONGEST_WINDOW_MS = 60_000

/** Why a failed call was not sent again. */
export type RetryRefusal =
  /** It may have run, and is not known to be repeatable. */
  | 'unsafe'
  /** A byte of it has reached the caller. */
  | 'streaming'
  /** It is somebody's retry already. */
  | 'inbound_attempt'
  /** The retries that are configured are used up. */
  | 'max_retries'
  /** The next try would begin after the deadline, or without one after the longest wait that there is. */
  | 'deadline'
  | 'server_budget'
  | 'gateway_budget'
  | 'concurrency'
  /** No other call of the tool has shown in time that it works again. */
  | 'no_proof'
  /** It was, and a limit of ours rejected that try. */
  | 'limited'

const retriesTotal = counter(
  'retries_total',
  'Failed calls, by whether they were sent again (`sent`) or why not, and calls that were hedged.',
  ['server', 'decision', 'arm'],
  'servers × 12 decisions × arms',
)

/** How often a call was sent again after a failure. */
export const retries = new CountFact({
  about: 'How often the call was sent again after a failure.',
  log: 'retries',
  alwaysLogged: true,
  attribute: 'breakwater.retries',
  event: () => ({ decision: 'sent' }),
  counting: { metric: retriesTotal, labels: () => ({ decision: 'sent' }), by: (count) => count },
})

/** How often a call was sent once more while the first try had not come back. */
export const hedges = new CountFact({
  about: 'How often the call was sent once more while the first try had not come back.',
  log: 'hedges',
  alwaysLogged: true,
  attribute: 'breakwater.hedges',
  event: () => ({ decision: 'sent' }),
  counting: { metric: retriesTotal, labels: () => ({ decision: 'hedged' }), by: (count) => count },
})

/** Why the last failure of a call was not followed by another try. */
export const retryRefused = new Fact<RetryRefusal | undefined>(undefined, {
  about: 'Why the last failure was not followed by another try.',
  log: 'retryRefused',
  event: (refusal) => ({ decision: 'refused', reason: String(refusal) }),
  counting: { metric: retriesTotal, labels: (refusal) => ({ decision: String(refusal) }) },
})

/** A budget for a share of the calls in (0, 1]: the rate that is allowed however few calls there are is divided, or arms would multiply it. */
export const dividedBudget = (budget: BudgetSettings, share: number): BudgetSettings => ({
  ...budget,
  floor: budget.floor * share,
})

/** Under this name of a server the budget of the whole gateway is kept. */
const GATEWAY = ''

/** The kind of state of budgets. */
const RETRY_BUDGET = 'retry-budget'

/** Budgets as they are shown. */
export const retryBudget: StateKind<RetryBudget> = {
  kind: RETRY_BUDGET,
  isBudget: true,
  gauge: {
    metric: gauge(
      'retry_budget_balance',
      'Retries that the budget of a server would allow now, by the default policies or in an arm; without a server, that of the gateway.',
      ['server', 'arm'],
      '(servers + 1) × arms',
    ),
    samples: (budget) => [{ labels: {}, value: budget.snapshot().balance }],
  },
}

/** How a call failed that is to be sent again. */
export interface RetryKind {
  /** The server may have worked on it, or has too much to do. */
  readonly isCostly: boolean
  /** It is released gradually, by the gate of its server or by a proof that its tool works: how many are under way is bounded there. */
  readonly isHeld: boolean
}

const HEDGE: RetryKind = { isCostly: true, isHeld: false }

/** The two budgets that a retry needs to be in: that of its server, and that of the whole gateway. */
export class RetryBudgets {
  readonly #server: RetryBudget
  readonly #gateway: RetryBudget
  readonly #terms: BudgetTerms
  /** The terms for retries of calls that cost the server something. */
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

  /** A call begins. */
  enter(now: Millis): void {
    this.#server.enter(now)
    this.#gateway.enter(now)
  }

  /** It is over, with all its tries. */
  leave(): void {
    this.#server.leave()
    this.#gateway.leave()
  }

  /** Takes a retry from both, or from neither: then it says why. */
  reserve(now: Millis, { isCostly, isHeld }: RetryKind): RetryRefusal | undefined {
    const terms = isCostly ? this.#costly : this.#terms
    if (this.#server.balance(terms, now) < 1) return 'server_budget'
    if (this.#gateway.balance(terms, now) < 1) return 'gateway_budget'
    if (!isHeld && !this.#server.hasRoom(terms)) return 'concurrency'
    this.#server.withdraw(now)
    this.#gateway.withdraw(now)
    return undefined
  }

  /** A retry that was reserved is under way, or about to be. It needs a `release`. */
  start(): void {
    this.#server.start()
    this.#gateway.start()
  }

  /** Both at once. */
  claim(now: Millis, kind: RetryKind = HEDGE): RetryRefusal | undefined {
    const refusal = this.reserve(now, kind)
    if (refusal === undefined) this.start()
    return refusal
  }

  /** A retry is over, or will not be sent after all. */
  release(): void {
    this.#server.release()
    this.#gateway.release()
  }
}

/** The part of a config that says how much may be sent again: the same for retries and for hedges. */
export const budgetSchema = z
  .strictObject({
    ratio: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe('Share of the calls of a window that may be sent again after a quick failure, 0 to 1.'),
    costlyRatio: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe(
        'The same after timeouts, HTTP 429 and 503, and for hedges, where another try makes it worse; at most `ratio`. So much less of `floor` counts then, too.',
      ),
    floor: z
      .number()
      .min(0)
      .max(1_000)
      .default(10)
      .describe(
        'Retries a second that are allowed however few calls there are; the larger of the two counts.',
      ),
    window: duration({ min: 1_000, max: LONGEST_WINDOW_MS })
      .default(10_000)
      .describe('How far back calls and retries count; whole seconds.'),
    concurrency: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe(
        'Share of the calls under way to a server that may be retries, 0 to 1. Retries that wait do not count.',
      ),
    leastConcurrent: z
      .int()
      .min(0)
      .max(10_000)
      .default(16)
      .describe('Retries under way to a server that are allowed however few calls there are.'),
  })
  .prefault({})
  .describe('How much may be sent again, per server and in the whole gateway. Retries and hedges share it.')

type BudgetSettings = z.output<typeof budgetSchema>

const ATTEMPT_HEADER = 'x-breakwater-attempt'

/** By these whoever calls us says which try of theirs it is. */
const inboundHeaders = [ATTEMPT_HEADER, 'x-envoy-attempt-count']

/** The call once more, as try number `attempt`. Servers behind HTTP are told, so that none of them retries a retry. */
export function nextTry(call: Call, attempt: number, changes: CallChanges = {}): Call {
  changes.attempt = attempt
  if (attempt > 1) changes.headers = { ...call.headers, [ATTEMPT_HEADER]: String(attempt) }
  return derive(call, changes)
}

/** Whether a call came to us as somebody's retry: whoever is outermost retries, or tries multiply. */
export function isInboundRetry({ inbound }: Call): boolean {
  return inboundHeaders.some((name) => {
    const attempt = Number(inbound[name])
    return Number.isInteger(attempt) && attempt >= 2
  })
}

/** The outcome of a call that had several tries: when one of them may have run, the call may have run. */
export function withSent(outcome: Outcome, sent: boolean): Outcome {
  if (outcome.kind !== 'failed' || !sent || outcome.error.sent) return outcome
  return { kind: 'failed', error: { ...outcome.error, sent } }
}

/** How much may be sent again. */
export interface BudgetTerms {
  /** Share of the calls of a window that may be sent again. */
  readonly ratio: number
  /** Retries a second that are allowed however few calls there are. */
  readonly floor: number
  /** How far back calls and retries count, in milliseconds; rounded up to whole seconds. */
  readonly window: Millis
  /** Share of the calls under way that may be retries. */
  readonly concurrency: number
  /** Retries under way that are allowed however few calls there are. */
  readonly leastConcurrent: number
}

/** A budget as the admin API shows it: sums over the window of the terms that were asked for last. */
export interface BudgetSnapshot {
  /** Retries that may be sent now. */
  readonly balance: number
  readonly deposits: number
  readonly withdrawals: number
  /** Calls under way, in whatever try or wait between tries. */
  readonly active: number
  /** Retries and hedges of active calls that wait for their turn or are under way. */
  readonly retrying: number
}

/** A second: floors are rates per second. */
const BUCKET_MS = 1_000
const BUCKETS = LONGEST_WINDOW_MS / BUCKET_MS

/** Products such as 0.29 × 100 come out a hair too small: nobody loses a retry for that. */
const HAIR = 1e-9

/**
 * Retries earned by calls: Finagle's RetryBudget (every call deposits a share of a retry, which expires with
 * its window), in buckets of a second, and Envoy's form of it next to it (retries under way as a share of calls
 * under way). The first bounds the load in the long run; the second holds when calls become slow, and what
 * fast ones have deposited before would feed a storm.
 *
 * The floor for small traffic, which Finagle adds to the share, here counts *within* the share: a window allows
 * max(floor × window, ratio × deposits). With a ratio of 0.2 and a floor of 5/s, a server that fails all calls for 30 s gets at most 1.25 × the
 * load that is offered, if that is steady and at least 25/s: there 20 % of the deposits is no less than the floor of
 * 5/s, so a window allows 2 s worth of load, perhaps all at once. Three such bursts fit into 30 s, and as windows move
 * by whole seconds half of a fourth, with the 2 retries of a call: 7 s worth of load more, 1.23 × (1.27 × with 10
 * retries and nearly no backoff, without the limit of concurrency). A sum of both would be 1.4 × at 25/s. Below 25/s
 * the floor alone counts: an agent that is alone gets its retries.
 *
 * The terms are not part of the state: tools of one server may have different ones, and share what is counted.
 */
export class RetryBudget {
  readonly #clock: Clock
  readonly #deposits = new Float64Array(BUCKETS)
  readonly #withdrawals = new Float64Array(BUCKETS)
  #terms: BudgetTerms
  /** The second that the clock showed last. */
  #second: number
  #active = 0
  #retrying = 0

  /** `terms`: those of whoever comes first, for the snapshot. */
  constructor(clock: Clock, terms: BudgetTerms) {
    this.#clock = clock
    this.#terms = terms
    this.#second = secondOf(clock.now())
  }

  /** A call begins: it deposits. */
  enter(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#deposits[bucket] = (this.#deposits[bucket] as number) + 1
    this.#active++
  }

  /** A call is over, with all its tries. */
  leave(): void {
    this.#active--
  }

  /** How many retries may be sent at `now`: a whole number, at least 0. */
  balance(terms: BudgetTerms, now: Millis): number {
    this.#terms = terms
    this.#bucket(now)
    const { ratio, floor, window } = terms
    const earned = Math.max(floor * bucketsOf(window), ratio * this.#sum(this.#deposits))
    return Math.max(0, Math.floor(earned - this.#sum(this.#withdrawals) + HAIR))
  }

  /** Whether one more retry may be under way. */
  hasRoom({ concurrency, leastConcurrent }: BudgetTerms): boolean {
    return this.#retrying + 1 <= Math.max(leastConcurrent, concurrency * this.#active + HAIR)
  }

  /** A retry is decided upon; whether it may be, the caller has asked. */
  withdraw(now: Millis): void {
    const bucket = this.#bucket(now)
    this.#withdrawals[bucket] = (this.#withdrawals[bucket] as number) + 1
  }

  /** A retry is under way, or waits for no more than its own time. */
  start(): void {
    this.#retrying++
  }

  /** A retry is over, or will not be sent after all. What it took stays taken. */
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

  /** The bucket of this moment; those of seconds that nobody has seen are emptied. */
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
