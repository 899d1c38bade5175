import type { CallRecord, Outcome } from '../../mesh/call.ts'
import { isFailure, isIncorrect, LEAST_BLAMED_MS } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Ejection } from './ejection.ts'
import type { Replica } from './replica.ts'
import { UsualTime } from './usual.ts'

/** Draws the lessons of what became of the calls of one tool. */
export class Scores {
  readonly #usual = new UsualTime()
  readonly #ejection: Ejection | undefined

  constructor(ejection: Ejection | undefined) {
    this.#ejection = ejection
  }

  /** Notes how an attempt ended after `ms`, in which the wait for an agent's answer does not count. */
  note(replica: Replica, { sent }: CallRecord, outcome: Outcome, ms: Millis, now: Millis): void {
    if (outcome.kind === 'rejected') return
    if (outcome.kind === 'answered') replica.estimate.record(ms, now)
    else if (sent && wasGivenUp(outcome.error)) replica.estimate.recordCensored(ms, now)
    this.#rate(replica, outcome, ms, now)
  }

  #rate(replica: Replica, outcome: Exclude<Outcome, { kind: 'rejected' }>, ms: Millis, now: Millis): void {
    const { load } = replica
    const slowness = this.#usual.slownessOf(ms)
    if (outcome.kind === 'failed' && isInnocent(outcome.error, ms)) return load.givenUp(slowness, now)
    if (isFailure(outcome)) {
      load.failed(slowness, now)
      this.#ejection?.failed(replica, now)
      return
    }
    // What was refused for its load, or answered wrongly, is no outage, and must not draw more calls either.
    if (outcome.kind === 'failed' || isIncorrect(outcome)) return load.failed(slowness, now)
    this.#usual.add(ms)
    load.answered(slowness, now)
    this.#ejection?.succeeded(replica, now)
  }
}

function wasGivenUp({ reason }: GatewayError): boolean {
  return reason === 'attempt_timeout' || reason === 'deadline_exceeded' || reason === 'cancelled'
}

/** Whether the end of a call says nothing of its replica but that it had not answered yet. */
function isInnocent({ reason }: GatewayError, ms: Millis): boolean {
  switch (reason) {
    case 'cancelled':
    case 'internal':
    case 'shutting_down':
      return true
    case 'deadline_exceeded':
      return ms < LEAST_BLAMED_MS
    default:
      return false
  }
}
