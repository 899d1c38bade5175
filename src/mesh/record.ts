import type { Millis } from './clock.ts'
import type { Reason } from './errors.ts'
import type { Outcome } from './outcome.ts'

/** What a call holds of something that is limited, and gives back while its agent is asked. */
export interface Holding {
  /** What the same call held before. */
  outer: Holding | undefined
  /** The agent is asked: others may have it meanwhile. */
  lend(): void
  /** The agent has answered. A promise is settled when the call has it again, or is over. */
  takeBack(): Promise<void> | undefined
}

/** Why a failed call was not sent again. */
export type RetryRefusal =
  /** It may have run, and is not known to be repeatable. */
  | 'unsafe'
  /** A byte of it has reached the caller. */
  | 'streaming'
  /** It is somebody's retry already. */
  | 'inbound_attempt'
  /** The attempts that are configured are used up. */
  | 'attempts'
  /** The next try would begin after the deadline, or after the wait that the server asked for. */
  | 'deadline'
  | 'server_budget'
  | 'gateway_budget'
  | 'concurrency'
  /** It was, and a limit of ours rejected that try. */
  | 'limited'

/** A fault that was aimed at a call, for whoever accounts for it. */
export interface InjectedFault {
  readonly name: string
  readonly type: string
  readonly side: 'upstream' | 'client'
  /** The try that it hit, from 1. */
  readonly attempt: number
  /** `shadow`: it was decided and not done. */
  status: 'applied' | 'not_applicable' | 'shadow'
  note?: Readonly<Record<string, unknown>>
}

/** What became of a fault, by what the agent got. */
export interface FaultFate {
  /** As the record of the call that it hit has it. */
  readonly fault: InjectedFault
  /** The agent got a good answer in spite of it, was told that something is wrong, or took a wrong answer for a good one. */
  readonly fate: 'masked' | 'surfaced' | 'escaped'
}

/** The task of an agent that a call belongs to. */
export interface CallIntent {
  /** As the agent named it, or its trace, or its session: unique only together with `source` and the tenant. */
  readonly id: string
  /** Who says so, from the surest to the vaguest. */
  readonly source: 'meta' | 'baggage' | 'trace' | 'header' | 'session'
}

/** The flat facts of one call. Layers write them, `observe` reads them once, at the end. */
export interface CallRecord {
  readonly startedAt: Millis
  /** Tries at an upstream. */
  attempts: number
  /** Whether any byte of the request was handed to an upstream. */
  sent: boolean
  /** When the first message reached the caller; from then on nothing may be retried. */
  firstByteAt: Millis | undefined
  /** Index of the replica that the last attempt went to. */
  replica: number | undefined
  /** Index of the replica at which its last attempt found no answer; undefined when that ended otherwise. */
  failedReplica: number | undefined
  /** Conversations that had to be opened again for this call. */
  recoveries: number
  /** Times that it was sent again after a failure. */
  retries: number
  /** Times that it was sent a second time while the first had not come back. */
  hedges: number
  /** Why its last failure was not followed by a retry. */
  retryRefused: RetryRefusal | undefined
  /** Why tries of it were rejected that are not what its caller is told: undefined for none. */
  overruled: Reason[] | undefined
  /** Whether an estimate said that its deadline could not be met. */
  infeasible: boolean
  /** Whether its arguments broke the tool's `inputSchema`. */
  invalidArguments: boolean
  /** Whether its answer is that of an earlier call with the same idempotency key, which was over or still under way. */
  replayed: 'no' | 'stored' | 'joined'
  /** Faults that were aimed at it; undefined for none. */
  faults: InjectedFault[] | undefined
  /**
   * What became of those that were applied, and of those of earlier calls that its answer still shows; known when it
   * is over, and undefined for none.
   */
  fates: readonly FaultFate[] | undefined
  /** Questions of the server that the agent has not answered yet. */
  asking: number
  /** When the first of them came. */
  askingSince: Millis
  /** How long the agent was asked before that, in milliseconds: deadlines and timeouts stand still meanwhile. */
  askedMs: Millis
  /** What it holds and gives back while the agent is asked, newest first; undefined for nothing. */
  holding: Holding | undefined
  /** Tries at an upstream that are under way. */
  upstream: number
  /** When the first of them began. */
  upstreamSince: Millis
  /** How long any try was under way before that, in milliseconds; of tries at the same time, once. */
  upstreamMs: Millis
  /** How long the gateway kept it waiting on purpose, in milliseconds: before retries, for a slot, for a quota. */
  waitedMs: Millis
  /** The arm of an experiment that it runs in; empty for none. */
  arm: string
  /** The task that it belongs to; undefined when nothing says so. */
  intent: CallIntent | undefined
  /** The trace that it is recorded in, 32 hexadecimal digits; undefined when it is not. */
  traceId: string | undefined
  /** What tracing notes of it until it is over; only tracing reads it. */
  span: unknown
}

/** Notes a rejection in place of which another outcome is told: it took place, and is counted. */
export function noteOverruled(record: CallRecord, outcome: Outcome): void {
  if (outcome.kind === 'rejected') (record.overruled ??= []).push(outcome.error.reason)
}

/** A record for a call that starts now. */
export function newRecord(startedAt: Millis): CallRecord {
  return {
    startedAt,
    attempts: 0,
    sent: false,
    firstByteAt: undefined,
    replica: undefined,
    failedReplica: undefined,
    recoveries: 0,
    retries: 0,
    hedges: 0,
    retryRefused: undefined,
    overruled: undefined,
    infeasible: false,
    invalidArguments: false,
    replayed: 'no',
    faults: undefined,
    fates: undefined,
    asking: 0,
    askingSince: 0,
    askedMs: 0,
    holding: undefined,
    upstream: 0,
    upstreamSince: 0,
    upstreamMs: 0,
    waitedMs: 0,
    arm: '',
    intent: undefined,
    traceId: undefined,
    span: undefined,
  }
}
