import { z } from 'zod'
import { type Call, type Channel, type Layer, type Outcome, type Service } from '../mesh/call.ts'
import { isFailure } from '../mesh/classify.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { type Expiry, ExpiryQueue } from '../mesh/time-limit.ts'
import type { Policy } from '../mesh/policy.ts'
import { duration } from '../units/duration.ts'
import {
  budgetSchema,
  dividedBudget,
  hedges,
  isInboundRetry,
  nextTry,
  RetryBudgets,
  withSent,
} from './retry/tries.ts'

const schema = z
  .strictObject({
    after: duration({ min: 1 })
      .default(2_000)
      .describe(
        'A call is overdue when it has run for this time, and for `times` the usual time of its tool.',
      ),
    times: z.number().min(1).max(1_000).default(5).describe('See `after`.'),
    budget: budgetSchema,
  })
  .describe('Repeats hanging calls as soon as another call has shown that the server answers again.')

/**
 * A hedge for hanging servers: a copy sent after a fixed delay would hang as well. A copy of a single overdue call
 * therefore tests whether the server answers. The other calls are sent again only when a later call has been answered.
 * The originals stay, and the first answer counts. Only known read-only calls are sent twice.
 */
export const overdue: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force for servers that may hang for a while, or lose a request. Use `false` where each call costs money.',
  divided: ({ budget, ...others }, share) => ({ ...others, budget: dividedBudget(budget, share) }),
  build({ budget, ...config }, context, scope): Layer {
    const { set, server, tool, overrides } = scope
    const key = { kind: 'overdue', set, server, tool, overrides, config }
    const late = context.state.get(key, () => new Late(context.clock, config.after, config.times))
    const budgets = new RetryBudgets(context, scope, budget)
    return (next) => (call) =>
      scope.effectOf(call) === 'read_only' && !isInboundRetry(call)
        ? late.run(call, next, budgets)
        : next(call)
  },
}

/** Longest pause between two test copies, in milliseconds, and its growth. */
const LONGEST_PAUSE_MS: Millis = 20_000
const PAUSE_GROWTH = 2

const MOST_COPIES = 4

/** The weight of the old usual time when a quicker call updates it. */
const FORGETTING = 0.98

/** A call without an answer so far. */
interface Asked {
  readonly since: Millis
  expiry: Expiry | undefined
  copies: number
  /** Whether a copy was sent while the server was known to answer: a call that still hangs then is slow, not lost. */
  isHeavy: boolean
  /** Sends a copy, unless out of budget (`broke`) or pointless (`useless`). `isProven`: the server answers again. */
  again(isProven: boolean): 'sent' | 'broke' | 'useless'
}

/** The calls of a tool, and the overdue calls among them. */
class Late {
  readonly #clock: Clock
  readonly #afterMs: Millis
  readonly #times: number
  readonly #looks: ExpiryQueue
  /** The overdue calls, in the order in which they became overdue. */
  readonly #late = new Set<Asked>()
  /** How long calls usually take; undefined while none has been answered. */
  #usualMs: Millis | undefined
  /** When the latest answered call was sent. */
  #provenAt: Millis = -Infinity
  #isProbing = false
  #pauseMs: Millis = 0

  constructor(clock: Clock, afterMs: Millis, times: number) {
    this.#clock = clock
    this.#afterMs = afterMs
    this.#times = times
    this.#looks = new ExpiryQueue(clock, afterMs)
  }

  run(call: Call, next: Service, budgets: RetryBudgets): Promise<Outcome> {
    // An aborted signal fires no more events: the tries would not learn of it.
    if (call.signal.aborted) return next(call)
    return new Promise((resolve, reject) => {
      const tries: Cancellation[] = []
      let [underWay, isOver, wasSent] = [0, false, false]
      let ownEnd: Outcome | undefined
      const follow = () => {
        for (const signal of tries) signal.abort(call.signal.reason)
      }
      const end = () => {
        isOver = true
        this.#left(asked)
        call.signal.removeEventListener('abort', follow)
        for (const signal of tries) signal.abort(anotherWasFaster)
      }
      const send = (number: number, own: { readonly channel?: Channel }) => {
        const signal = new Cancellation()
        const isCopy = tries.push(signal) > 1
        underWay++
        const sentAt = this.#clock.now()
        next(nextTry(call, number, { ...own, signal })).then(
          (outcome) => {
            underWay--
            if (isCopy) budgets.release()
            if (isOver) return
            const isGood = outcome.kind === 'answered' && !isFailure(outcome)
            wasSent ||= outcome.kind === 'failed' && outcome.error.sent
            if (!isCopy) ownEnd = outcome
            // After a message from the original try, the agent must get the original's outcome.
            const counts = isGood && !(isCopy && call.record.firstByteAt !== undefined)
            // A failed copy does not end the call while another try may still be answered.
            const isEnd = counts || underWay === 0
            // Ends the call first, or `#answered` would send it again with the other overdue calls.
            if (isEnd) end()
            if (isGood) this.#answered(sentAt)
            if (isEnd) resolve(withSent(isGood ? outcome : (ownEnd ?? outcome), wasSent))
          },
          (defect: unknown) => {
            if (isCopy) budgets.release()
            if (!isOver) end()
            reject(defect)
          },
        )
      }
      const asked: Asked = {
        since: this.#clock.now(),
        expiry: undefined,
        copies: 0,
        isHeavy: false,
        again: (isProven) => {
          if (isOver || call.signal.aborted || call.record.firstByteAt !== undefined) return 'useless'
          if (asked.isHeavy || asked.copies === MOST_COPIES) return 'useless'
          const kind = { isCostly: !isProven, isHeld: isProven }
          if (budgets.claim(this.#clock.now(), kind) !== undefined) return 'broke'
          asked.isHeavy = isProven
          hedges.add(call.record)
          const signal = tries.length
          send(call.attempt + ++asked.copies, { channel: silent(() => tries[signal]?.abort(mayNotAsk)) })
          return 'sent'
        },
      }
      call.signal.addEventListener('abort', follow)
      this.#lookLater(asked)
      send(call.attempt, {})
    })
  }

  #lookLater(asked: Asked): void {
    asked.expiry = this.#looks.add(() => {
      const usualMs = this.#usualMs
      if (usualMs === undefined || this.#clock.now() - asked.since < this.#times * usualMs)
        return this.#lookLater(asked)
      asked.expiry = undefined
      if (this.#provenAt > asked.since && asked.again(true) !== 'broke') return
      this.#late.add(asked)
      this.#probe()
    })
  }

  #left(asked: Asked): void {
    if (asked.expiry !== undefined) this.#looks.remove(asked.expiry)
    else this.#late.delete(asked)
  }

  /**
   * Notes that a call sent at `sentAt` has been answered: overdue calls sent before count as lost, and are sent again.
   */
  #answered(sentAt: Millis): void {
    const tookMs = this.#clock.now() - sentAt
    const usualMs = this.#usualMs ?? 0
    if (sentAt > this.#provenAt) this.#provenAt = sentAt
    this.#usualMs = tookMs > usualMs ? tookMs : usualMs * FORGETTING + tookMs * (1 - FORGETTING)
    if (this.#late.size === 0) return
    for (const asked of [...this.#late]) {
      if (asked.since >= sentAt) continue
      if (asked.again(true) === 'broke') return
      this.#late.delete(asked)
    }
  }

  /** Tests the server with copies of overdue calls in turn, with growing pauses: a single call may hang by itself. */
  #probe(): void {
    if (this.#isProbing) return
    const inTurn = [...this.#late].sort((a, b) => a.copies - b.copies)
    for (const asked of inTurn) {
      if (asked.again(false) === 'useless') {
        this.#late.delete(asked)
        continue
      }
      this.#isProbing = true
      this.#pauseMs = Math.min(
        LONGEST_PAUSE_MS,
        this.#pauseMs === 0 ? this.#afterMs : this.#pauseMs * PAUSE_GROWTH,
      )
      this.#clock.after(this.#pauseMs, () => {
        this.#isProbing = false
        this.#probe()
      })
      return
    }
    this.#pauseMs = 0
  }
}

const anotherWasFaster = gatewayError('cancelled', 'another try was faster')
const mayNotAsk = gatewayError('cancelled', 'a second try may not ask the agent')

/** Returns the channel of a copy: the agent hears nothing. A server's question ends the copy through `asked`. */
function silent(asked: () => void): Channel {
  return {
    open: () => undefined,
    pause: () => undefined,
    send(_, answer) {
      if (answer !== undefined) asked()
      return undefined
    },
  }
}
