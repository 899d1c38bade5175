import type { Millis } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'

/** Why a server is not well, as incidents, metrics and operators name it. */
export const failureReasons = [
  'dns',
  'connection_refused',
  'timeout',
  'tls',
  'protocol',
  'auth',
  'slow',
  'wrong_answer',
  'process_exit',
  'rate_limited',
] as const

export type FailureReason = (typeof failureReasons)[number]

/** What a probe consists of: the session is opened if need be, then a ping or the lists, then the tool if there is one. */
export const probeSteps = ['open', 'ping', 'list', 'tool'] as const
export type ProbeStep = (typeof probeSteps)[number]

export interface ProbeFailure {
  readonly reason: FailureReason
  /** For people; holds no secret. */
  readonly message: string
  /** Whether it takes no second one to be sure, as when a process has ended. */
  readonly isCertain?: boolean
}

/** One look at a server. */
export interface Probe {
  /** When it began, in milliseconds since the Unix epoch. */
  readonly beganAt: Millis
  /** The same on the monotonic clock: that of the wall may be set meanwhile. */
  readonly beganNow: Millis
  /** How long its steps took that ended well. */
  readonly took: Readonly<Partial<Record<ProbeStep, Millis>>>
  /** What went wrong; undefined: nothing did. */
  readonly failure: ProbeFailure | undefined
}

/** The one place that decides what an error of the gateway says of its server. */
export function failureReasonOf({ reason, cause }: GatewayError): FailureReason {
  if (cause !== undefined) return cause
  switch (reason) {
    case 'attempt_timeout':
    case 'deadline_exceeded':
    case 'overloaded':
      return 'timeout'
    case 'upstream_unauthorized':
    case 'upstream_forbidden':
      return 'auth'
    case 'upstream_rate_limited':
      return 'rate_limited'
    // It is not there, or ends its connections.
    case 'upstream_unavailable':
    case 'upstream_disconnected':
      return 'connection_refused'
    case 'incorrect_result':
      return 'wrong_answer'
    default:
      return 'protocol'
  }
}
