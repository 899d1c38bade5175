import { z } from 'zod'
import type { Call, Layer, Outcome, Service } from '../mesh/call.ts'
import { isFailure, isIncorrect, isRepeatable, wasNeverDelivered } from '../mesh/classify.ts'
import type { Millis } from '../mesh/clock.ts'
import type { KeyedRandom } from '../mesh/keyed-random.ts'
import { gatewayError, isGatewayError } from '../mesh/errors.ts'
import type { PolicyContext, Policy, Scope } from '../mesh/policy.ts'
import { noteSupersededRejection } from '../mesh/record.ts'
import { duration } from '../units/duration.ts'
import {
  budgetSchema,
  dividedBudget,
  hedges,
  isInboundRetry,
  nextTry,
  retries,
  retryBudget,
  RetryBudgets,
  type RetryRefusal,
  retryRefused,
  withSent,
} from './retry/tries.ts'

const schema = z
  .strictObject({
    maxRetries: z.int().min(0).max(10).default(2).describe('Most tries after the first, 0 to 10.'),
    base: duration({ min: 1 })
      .default(100)
      .describe(
        'Longest wait before the first retry; it doubles with each. The wait is drawn from 0 up to it.',
      ),
    cap: duration({ min: 1 })
      .default(2_000)
      .describe('Longest of these waits. What the server asks for comes on top.'),
    budget: budgetSchema,
    incorrect: z
      .boolean()
      .default(false)
      .describe('Whether answers that are wrong (see `verdict`) are asked for again.'),
  })
  .refine(({ base, cap }) => base <= cap, {
    path: ['base'],
    error: '`base` must not exceed `cap`',
  })
  .describe('Sends a failed call again, when that can do no harm: within a budget, and within its deadline.')

/** Sends failed calls again; see `ruleAgainst` for which, and `state/retry-budget.ts` for how many. */
export const retry: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force for servers whose failures are short: only calls that can do no harm are sent again. Set `maxRetries: 0` where the agent or the server retries by itself, because retries at several levels multiply.',
  facts: [retries, retryRefused],
  states: [retryBudget],
  divided: ({ budget, ...others }, share) => ({ ...others, budget: dividedBudget(budget, share) }),
  build({ budget, ...config }, context, scope): Layer {
    const budgets = new RetryBudgets(context, scope, budget)
    const parts = { ...config, context, scope, budgets }
    const leave = () => budgets.leave()
    const broke = (cause: unknown) => {
      leave()
      throw cause
    }
    return (next) => (call) => {
      const hedgesBefore = hedges.of(call.record)
      const first = next(call)
      budgets.enter(context.clock.now())
      return first.then((outcome) => {
        if (isWorthRetrying(outcome, config.incorrect))
          return Promise.resolve(new Retries(call, next, parts, hedgesBefore).after(outcome)).finally(leave)
        leave()
        return outcome
      }, broke)
    }
  },
}

interface RetryParts extends Backoff {
  /** Most retries of one call. */
  readonly maxRetries: number
  readonly incorrect: boolean
  readonly context: PolicyContext
  readonly scope: Scope
  readonly budgets: RetryBudgets
}

/** What follows on the first failure of a call: waits and further tries, until one of them is to be told. */
class Retries {
  readonly #call: Call
  readonly #next: Service
  readonly #parts: RetryParts
  readonly #hedgesBefore: number
  #retries = 0
  /** Whether any try may have run. */
  #sent = false
  /** The latest answer that came, though wrong: better than none. */
  #wrong: Outcome | undefined

  /** `hedgesBefore`: what the call's record counted when it came here. */
  constructor(call: Call, next: Service, parts: RetryParts, hedgesBefore: number) {
    this.#call = call
    this.#next = next
    this.#parts = parts
    this.#hedgesBefore = hedgesBefore
  }

  /** What becomes of the call after a try that ended so. */
  after(outcome: Outcome): Outcome | Promise<Outcome> {
    const { context, budgets, incorrect } = this.#parts
    const { signal, record } = this.#call
    this.#sent ||= !wasNeverDelivered(outcome)
    if (signal.aborted || !isWorthRetrying(outcome, incorrect)) return this.#told(outcome)
    const waitMs = waitBefore(this.#retries, this.#call, outcome, this.#parts, context.random)
    const refusal = this.#refusal(outcome, waitMs)
    retryRefused.note(record, refusal)
    if (refusal !== undefined) return this.#told(outcome)
    if (outcome.kind === 'answered' && outcome.verdict !== 'rpc_error') this.#wrong = outcome
    const since = context.clock.now()
    return context.clock.sleep(waitMs, signal).then(
      () => {
        record.waitedMs += context.clock.now() - since
        return this.#again(outcome)
      },
      (reason: unknown) => {
        budgets.release()
        return this.#abandoned(reason)
      },
    )
  }

  #refusal(outcome: Outcome, waitMs: number): RetryRefusal | undefined {
    const { maxRetries, context, scope, budgets } = this.#parts
    const rule = ruleAgainst(this.#call, outcome, scope)
    if (rule !== undefined) return rule
    if (this.#retries >= maxRetries) return 'max_retries'
    const now = context.clock.now()
    return fits(waitMs, this.#call, now) ? budgets.claim(now) : 'deadline'
  }

  #again(before: Outcome): Promise<Outcome> {
    const { attempt, record } = this.#call
    this.#retries++
    // Hedges have numbers too: no two tries of a call share one.
    const number = attempt + this.#retries + hedges.of(record) - this.#hedgesBefore
    const release = () => this.#parts.budgets.release()
    return this.#next(nextTry(this.#call, number))
      .finally(release)
      .then((outcome) => {
        // A limit of ours says nothing of the call, which was sent before: what stands is how that ended.
        if (outcome.kind === 'rejected') {
          noteSupersededRejection(record, outcome)
          retryRefused.note(record, 'limited')
          return this.#told(before)
        }
        retries.add(record)
        return this.after(outcome)
      })
  }

  #told(outcome: Outcome): Outcome {
    const none = outcome.kind !== 'answered' || isFailure(outcome)
    return none && this.#wrong !== undefined ? this.#wrong : withSent(outcome, this.#sent)
  }

  /** The call was ended between two tries. */
  #abandoned(reason: unknown): Outcome {
    const error = isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
    return { kind: 'failed', error: { ...error, sent: this.#call.record.sent } }
  }
}

/**
 * Whether another try might end better. What our own limits rejected is not tried again: they would be met by a
 * retry for every call that they keep away. `incorrect`: whether wrong answers count as failures.
 */
function isWorthRetrying(outcome: Outcome, incorrect: boolean): boolean {
  switch (outcome.kind) {
    case 'rejected':
      return false
    case 'failed': {
      const { reason, retryable, notStarted } = outcome.error
      // Retryable for the agent, with another deadline or once the server is up; not within this one.
      return reason !== 'deadline_exceeded' && !notStarted && retryable
    }
    case 'answered':
      return isFailure(outcome) || (incorrect && isIncorrect(outcome) && !asksForInput(outcome))
  }
}

/** Why a failed call must not be sent again, whatever is left of its time and of the budgets. */
function ruleAgainst(call: Call, outcome: Outcome, scope: Scope): RetryRefusal | undefined {
  if (call.record.firstByteAt !== undefined) return 'streaming'
  if (!isSafe(call, outcome, scope)) return 'unsafe'
  return isInboundRetry(call) ? 'inbound_attempt' : undefined
}

function isSafe(call: Call, outcome: Outcome, scope: Scope): boolean {
  return wasNeverDelivered(outcome) || isRepeatable(scope.effectOf(call))
}

/** Whether the answer is a question to the agent, which is an answer like any other. */
function asksForInput(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return false
  const result = outcome.result.value.result as { resultType?: unknown } | undefined
  return result?.resultType === 'input_required'
}

interface Backoff {
  /** Longest wait before the first retry, in milliseconds; each further one may wait twice as long. */
  readonly base: Millis
  /** Longest of these waits, in milliseconds. What the server asks for comes on top. */
  readonly cap: Millis
}

/** Longest wait for a call that has no deadline, in milliseconds: servers may ask for hours. */
const LONGEST_WAIT_MS = 60_000

/**
 * How long to wait before retry number `retry`, from 0, in milliseconds: a uniform draw from 0 up to the
 * exponential bound ("full jitter", Brooker 2015), which spreads a crowd the widest. Comes on top of what the
 * server asked for: all who were sent away got the same time from it.
 */
function waitBefore(
  retry: number,
  call: Call,
  outcome: Outcome,
  { base, cap }: Backoff,
  random: KeyedRandom,
): Millis {
  const { caller, id, record, server, tool, attempt } = call
  const key = `${caller.id}\n${id}\n${record.startedAt}\n${server}\n${tool ?? call.method}\n${attempt + retry}`
  const askedMs = outcome.kind === 'failed' ? (outcome.error.retryAfterMs ?? 0) : 0
  return askedMs + random(key, 'retry') * Math.min(cap, base * 2 ** retry)
}

/**
 * Whether a try after the wait begins before the deadline. Time that the agent was asked does not count towards
 * deadlines, but who was asked has been sent something, and that call is not retried.
 */
function fits(waitMs: Millis, { deadline }: Call, now: Millis): boolean {
  return waitMs < (deadline === undefined ? LONGEST_WAIT_MS : deadline.at - now)
}
