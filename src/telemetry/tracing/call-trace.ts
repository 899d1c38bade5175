import type { Call, CallRecord, Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Parent } from './parent.ts'

/** What is noted of one try at a server, until it is known whether anybody wants to see it. */
export class AttemptFacts {
  /** 16 hexadecimal digits: the server has got it as its parent. */
  readonly spanId: string
  readonly call: Call
  readonly startedAt: Millis
  /** Undefined while it is under way, and for good when the call was over before it. */
  endedAt: Millis | undefined
  outcome: Outcome | undefined
  replica: number | undefined

  constructor(spanId: string, call: Call, startedAt: Millis) {
    this.spanId = spanId
    this.call = call
    this.startedAt = startedAt
    this.endedAt = undefined
    this.outcome = undefined
    this.replica = call.replica
  }
}

/**
 * The plain facts of a call that spans may be made of when it is over. Spans of a call that nobody will look at are
 * never made: facts cost a tenth of them.
 */
export class CallTrace {
  readonly traceId: string
  /** Undefined for a call that begins a trace. */
  readonly parent: Parent | undefined
  /** What was decided at the beginning, and the server told: recorded whatever comes of it. */
  readonly sampled: boolean
  readonly attempts: AttemptFacts[] = []
  /** Calls under way that are parts of the same request of the agent; as a rule there is one. */
  open = 1
  outcome: Outcome | undefined
  /** The id of its own span, once that is made. */
  spanId: string | undefined

  constructor(traceId: string, parent: Parent | undefined, sampled: boolean) {
    this.traceId = traceId
    this.parent = parent
    this.sampled = sampled
  }

  /** Lets go of results, which may be large: others keep the record for longer than the call lasts. */
  forget(): void {
    this.attempts.length = 0
    this.outcome = undefined
  }
}

/** What became of something that a defect of the gateway ended. */
export const brokenOff: Outcome = { kind: 'failed', error: gatewayError('internal', 'internal error') }

/** The span of a call whose trace is kept, for log lines; undefined before its end and for all others. */
export function keptSpanOf({ span }: CallRecord): { traceId: string; spanId: string } | undefined {
  if (!(span instanceof CallTrace) || span.spanId === undefined) return undefined
  return { traceId: span.traceId, spanId: span.spanId }
}
