import { z } from 'zod'
import type { Call, Layer, Outcome, Service } from '../mesh/call.ts'
import {
  isConnectionLost,
  isFailure,
  isIncorrect,
  isRepeatable,
  wasNeverDelivered,
} from '../mesh/classify.ts'
import type { Millis } from '../mesh/clock.ts'
import type { KeyedRandom } from '../mesh/keyed-random.ts'
import { gatewayError, isGatewayError } from '../mesh/errors.ts'
import type { PolicyContext, Policy, Scope } from '../mesh/policy.ts'
import { noteSupersededRejection } from '../mesh/record.ts'
import { duration } from '../units/duration.ts'
import { SHORT_PATIENCE_MS } from './gate/patience.ts'
import { type Ended, Proof } from './retry/proof.ts'
import {
  budgetSchema,
  dividedBudget,
  hedges,
  isInboundRetry,
  nextTry,
  retries,
  retryBudget,
  RetryBudgets,
  type RetryKind,
  type RetryRefusal,
  retryRefused,
  withSent,
} from './retry/tries.ts'

const schema = z
  .strictObject({
    maxRetries: z.int().min(0).max(10).default(4).describe('Most tries after the first, 0 to 10.'),
    base: duration({ min: 1 })
      .default(100)
      .describe(
        'Longest wait before the first retry; four times as long for each further retry. The wait is drawn between half of this time and all of it.',
      ),
    cap: duration({ min: 1 })
      .default(10_000)
      .describe('Longest of these waits. The wait the server asks for is added.'),
    budget: budgetSchema,
    waitForProof: z
      .boolean()
      .default(true)
      .describe(
        'Whether a retry waits for a sign that the tool works: another call has succeeded. Without a sign, one retry at a time tests the tool. The wait is up to 20s, and none for a tool that has only failed for 30s.',
      ),
    incorrect: z
      .boolean()
      .default(false)
      .describe(
        'Whether wrong answers (see `verdict`) are retried. Wrong answers that `verdict` turns into errors are always retried. Both are retried at most twice, and without the wait of `waitForProof`, because the tool answers.',
      ),
  })
  .refine(({ base, cap }) => base <= cap, {
    path: ['base'],
    error: '`base` must not exceed `cap`',
  })
  .describe('Sends a failed call again if this can do no harm: within a budget, and within its deadline.')

/** Sends failed calls again; see `ruleAgainst` for which calls, and `RetryBudget` for how many. */
export const retry: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force for servers with short failures: only calls that can do no harm are sent again. Set `maxRetries: 0` where the agent or the server retries by itself, because retries at several levels multiply.',
  facts: [retries, retryRefused],
  states: [retryBudget],
  divided: ({ budget, ...others }, share) => ({ ...others, budget: dividedBudget(budget, share) }),
  build({ budget, ...config }, context, scope): Layer {
    const budgets = new RetryBudgets(context, scope, budget)
    const { set, server, tool, overrides } = scope
    const proof = context.state.get(
      { kind: 'proof', set, server, tool, overrides },
      () => new Proof(context.clock),
    )
    const parts = { ...config, context, scope, budgets, proof }
    const leave = () => budgets.leave()
    const broke = (cause: unknown) => {
      leave()
      throw cause
    }
    return (next) => (call) => {
      const hedgesBefore = hedges.of(call.record)
      const begunAt = context.clock.now()
      const first = next(call)
      budgets.enter(begunAt)
      return first.then((outcome) => {
        if (isWorthRetrying(outcome, config.incorrect))
          return Promise.resolve(
            new Retries(call, next, parts, hedgesBefore).after(outcome, begunAt),
          ).finally(leave)
        if (outcome.kind === 'answered') proof.good(begunAt)
        leave()
        return outcome
      }, broke)
    }
  },
}

interface RetryParts extends Backoff {
  readonly maxRetries: number
  readonly incorrect: boolean
  readonly waitForProof: boolean
  readonly context: PolicyContext
  readonly scope: Scope
  readonly budgets: RetryBudgets
  readonly proof: Proof
}

/** Ignores the end of a retry that did not wait for a proof. */
const ignore: Ended = () => undefined

/** Most tries of a call that may have run and then lost the connection: the call itself may crash the server. */
const MOST_LOST = 3

/** Most retries after wrong answers. After them, the tool is assumed to be always wrong. */
const MOST_WRONG = 2

/** The steps after a call's first failure: waits and further tries, until there is a final outcome. */
class Retries {
  readonly #call: Call
  readonly #next: Service
  readonly #parts: RetryParts
  readonly #hedgesBefore: number
  #retries = 0
  /** Tries that may have run, and after which the server was lost. */
  #lost = 0
  #incorrect = 0
  /** Whether any try may have run. */
  #sent = false
  /** The latest wrong answer, used if no other answer comes. */
  #wrong: Outcome | undefined

  /** `hedgesBefore`: the hedges in the call's record when the call arrived here. */
  constructor(call: Call, next: Service, parts: RetryParts, hedgesBefore: number) {
    this.#call = call
    this.#next = next
    this.#parts = parts
    this.#hedgesBefore = hedgesBefore
  }

  /** Returns the outcome of the call after a try that began at `begunAt`; tries again where another try may help. */
  after(outcome: Outcome, begunAt: Millis): Outcome | Promise<Outcome> {
    const { context, incorrect, proof } = this.#parts
    const { signal, record } = this.#call
    this.#sent ||= !wasNeverDelivered(outcome)
    if (!isWorthRetrying(outcome, incorrect)) {
      if (outcome.kind === 'answered') proof.good(begunAt)
      return this.#told(outcome)
    }
    const isLost = isConnectionLost(outcome)
    if (isLost && !wasNeverDelivered(outcome)) this.#lost++
    if (!isLost) proof.bad(begunAt)
    if (isIncorrect(outcome)) this.#incorrect++
    if (signal.aborted) return this.#told(outcome)
    const waitMs = waitBefore(this.#retries, this.#call, outcome, this.#parts, context.random)
    const refusal = this.#refusal(outcome, waitMs)
    retryRefused.note(record, refusal)
    if (refusal !== undefined) return this.#told(outcome)
    if (outcome.kind === 'answered' && outcome.verdict !== 'rpc_error') this.#wrong = outcome
    return this.#afterWait(outcome, begunAt, waitMs)
  }

  /**
   * Waits, and then tries again. Unless the server was lost or the answer wrong, may wait for a proof that the tool
   * works.
   */
  async #afterWait(outcome: Outcome, begunAt: Millis, waitMs: Millis): Promise<Outcome> {
    const { context, budgets, base } = this.#parts
    const { clock } = context
    const { signal, record } = this.#call
    const since = clock.now()
    const waitsForProof = this.#parts.waitForProof && !isConnectionLost(outcome) && !isIncorrect(outcome)
    const { isHeld } = this.#kindOf(outcome)
    // A held retry counts as under way only from its release on.
    if (!isHeld) budgets.start()
    let ended: Ended | undefined
    try {
      const shortMs = (outcome.kind === 'failed' && outcome.error.retryAfterMs) || 0
      await clock.sleep(waitsForProof ? Math.min(waitMs, shortMs + base) : waitMs, signal)
      ended = waitsForProof ? await this.#proven(begunAt, since + waitMs) : ignore
      record.waitedMs += clock.now() - since
      if (ended === undefined)
        return signal.aborted ? this.#abandoned(signal.reason) : this.#refused('no_proof', outcome)
    } catch (reason) {
      if (!isHeld) budgets.release()
      if (!signal.aborted) throw reason
      return this.#abandoned(reason)
    }
    if (isHeld) budgets.start()
    return this.#again(outcome, ended)
  }

  #proven(failedAt: Millis, turnAt: Millis): Promise<Ended | undefined> {
    const waiting = { failedAt, turnAt, retries: this.#retries, leftMs: this.#patienceMs() }
    return this.#parts.proof.wait(waiting, this.#call.signal)
  }

  /** Returns how long the call may wait for a proof, in milliseconds. */
  #patienceMs(): Millis {
    const { record } = this.#call
    const left = leftMs(this.#call, this.#parts.context.clock.now())
    return record.hasAlternative?.('tool') === true ? Math.min(left, SHORT_PATIENCE_MS) : left
  }

  #refused(refusal: RetryRefusal, outcome: Outcome): Outcome {
    retryRefused.note(this.#call.record, refusal)
    return this.#told(outcome)
  }

  #refusal(outcome: Outcome, waitMs: number): RetryRefusal | undefined {
    const { maxRetries, context, scope, budgets } = this.#parts
    const rule = ruleAgainst(this.#call, outcome, scope)
    if (rule !== undefined) return rule
    if (this.#retries >= maxRetries || this.#lost >= MOST_LOST || this.#incorrect > MOST_WRONG)
      return 'max_retries'
    const now = context.clock.now()
    if (waitMs >= leftMs(this.#call, now)) return 'deadline'
    // A call that found no server has cost nothing, and the gate of its server says when to try again.
    const isFree = isConnectionLost(outcome) && wasNeverDelivered(outcome)
    return isFree ? undefined : budgets.reserve(now, this.#kindOf(outcome))
  }

  #kindOf(outcome: Outcome): RetryKind {
    return { isCostly: isCostly(outcome), isHeld: isConnectionLost(outcome) || this.#parts.waitForProof }
  }

  async #again(before: Outcome, ended: Ended): Promise<Outcome> {
    const { attempt, record } = this.#call
    const { budgets, context } = this.#parts
    this.#retries++
    // Hedges have numbers too: no two tries of a call share a number.
    const number = attempt + this.#retries + hedges.of(record) - this.#hedgesBefore
    const begunAt = context.clock.now()
    let isGood = false
    try {
      const outcome = await this.#next(nextTry(this.#call, number)).finally(() => budgets.release())
      if (outcome.kind !== 'rejected') {
        retries.add(record)
        isGood = !isWorthRetrying(outcome, this.#parts.incorrect)
        // Notes the result before `ended` lets the next retry go.
        return this.after(outcome, begunAt)
      }
      // A rejection by the gateway's own limit says nothing about the call, so the earlier outcome is used.
      noteSupersededRejection(record, outcome)
      return this.#refused('limited', before)
    } finally {
      ended(isGood)
    }
  }

  #told(outcome: Outcome): Outcome {
    const none = outcome.kind !== 'answered' || isFailure(outcome)
    return none && this.#wrong !== undefined ? this.#wrong : withSent(outcome, this.#sent)
  }

  #abandoned(reason: unknown): Outcome {
    const error = isGatewayError(reason) ? reason : gatewayError('cancelled', 'the caller gave up')
    return { kind: 'failed', error: { ...error, sent: this.#call.record.sent } }
  }
}

/**
 * Returns whether another try might end better. Calls rejected by the gateway's own limits are not retried: the retry
 * would only meet the same limit. `incorrect`: whether wrong answers count as failures.
 */
function isWorthRetrying(outcome: Outcome, incorrect: boolean): boolean {
  switch (outcome.kind) {
    case 'rejected':
      return false
    case 'failed': {
      const { reason, retryable, notStarted } = outcome.error
      // The agent may retry later or with another deadline, but a retry within this deadline is useless.
      return reason !== 'deadline_exceeded' && !notStarted && retryable
    }
    case 'answered':
      return isFailure(outcome) || (incorrect && isIncorrect(outcome) && !asksForInput(outcome))
  }
}

/** Returns why a failed call must not be sent again, whatever remains of its time and of the budgets. */
function ruleAgainst(call: Call, outcome: Outcome, scope: Scope): RetryRefusal | undefined {
  if (call.record.firstByteAt !== undefined) return 'streaming'
  if (!isSafe(call, outcome, scope)) return 'unsafe'
  return isInboundRetry(call) ? 'inbound_attempt' : undefined
}

function isSafe(call: Call, outcome: Outcome, scope: Scope): boolean {
  return wasNeverDelivered(outcome) || isRepeatable(scope.effectOf(call))
}

/** Returns whether the answer asks the agent for input. Such an answer is not wrong. */
function asksForInput(outcome: Outcome): boolean {
  if (outcome.kind !== 'answered') return false
  const result = outcome.result.value.result as { resultType?: unknown } | undefined
  return result?.resultType === 'input_required'
}

/** How much longer each wait may be than the wait before. */
const GROWTH = 4

interface Backoff {
  /** Longest wait before the first retry, in milliseconds; each further retry may wait four times as long. */
  readonly base: Millis
  /** Longest of these waits, in milliseconds. The wait the server asks for is added. */
  readonly cap: Millis
}

/** Longest wait for a call without a deadline, in milliseconds: servers may ask for hours. */
const LONGEST_WAIT_MS = 60_000

/**
 * Returns how long to wait before retry number `retry`, from 0, in milliseconds. The wait is a uniform draw from half
 * of the exponential bound up to the whole bound ("equal jitter", Brooker 2015). A failed server thus always gets some
 * time. Adds the wait the server asked for, which is the same for all refused callers.
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
  return askedMs + (0.5 + random(key, 'retry') / 2) * Math.min(cap, base * GROWTH ** retry)
}

/**
 * Returns how long a call can wait, in milliseconds. Time spent asking the agent does not count towards deadlines, but
 * an asking call has been sent, and is not retried.
 */
function leftMs({ deadline }: Call, now: Millis): Millis {
  return deadline === undefined ? LONGEST_WAIT_MS : deadline.at - now
}

/** Returns whether the server may have worked on the call, or is overloaded without a retry time: a retry adds load. */
function isCostly(outcome: Outcome): boolean {
  if (outcome.kind !== 'failed') return false
  const { reason, status, retryAfterMs } = outcome.error
  if (reason === 'attempt_timeout') return true
  return retryAfterMs === undefined && (reason === 'upstream_rate_limited' || status === 503)
}
