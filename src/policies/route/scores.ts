import type { Call, Outcome } from '../../mesh/call.ts'
import { attributionOf } from '../../mesh/classify.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Ejection } from './ejection.ts'
import { UsualTime } from './load.ts'
import type { Replica } from './replica.ts'

/** Draws the lessons of what became of the calls of one tool. */
export class Scores {
  readonly #usual = new UsualTime()
  readonly #ejection: Ejection | undefined

  constructor(ejection: Ejection | undefined) {
    this.#ejection = ejection
  }

  /** Notes how an attempt ended after `ms`, in which the wait for an agent's answer does not count. */
  note(replica: Replica, call: Call, outcome: Outcome, ms: Millis, now: Millis): void {
    if (outcome.kind === 'rejected') return
    if (outcome.kind === 'answered') replica.estimate.record(ms, now)
    else if (call.record.sent && wasGivenUp(outcome.error)) replica.estimate.recordCensored(ms, now)
    const { load } = replica
    const slowness = this.#usual.slownessOf(ms)
    switch (attributionOf(outcome, call, ms)) {
      case 'good':
        this.#usual.add(ms)
        load.answered(slowness, now)
        return load.succeeded(now)
      case 'outage':
        load.failed(slowness, now)
        load.broke(ms, now)
        return this.#ejection?.failed(replica, now)
      case 'wrong':
      case 'refused':
        // No outage; but whoever is quick at it must not draw more calls either.
        return load.failed(slowness, now)
      case 'caller_error':
        if (outcome.kind === 'answered') load.answered(slowness, now)
        return
      case 'caller_timeout':
      case 'nothing':
        return load.givenUp(slowness, now)
    }
  }
}

function wasGivenUp({ reason }: GatewayError): boolean {
  return reason === 'attempt_timeout' || reason === 'deadline_exceeded' || reason === 'cancelled'
}
