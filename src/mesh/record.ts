import type { Millis } from './clock.ts'
import type { Outcome } from './outcome.ts'
import type { MetricSpec } from './metric-spec.ts'

/** A limited resource that a call holds, and lends to other calls while the server waits for the agent's answer. */
export interface Holding {
  /** The previous holding of the same call; undefined for none. */
  outer: Holding | undefined
  /** Called when the server asks the agent: other calls may use the resource meanwhile. */
  lend(): void
  /**
   * Called when the agent has answered. Returns a promise that settles when the call has the resource again, or is
   * over; undefined when the call has it at once.
   */
  takeBack(): Promise<void> | undefined
}

/** The agent's task that a call belongs to. */
export interface CallIntent {
  /** The name given by the agent, or its trace or session: unique only together with `source` and the tenant. */
  readonly id: string
  /** The source of the id, from most to least certain. */
  readonly source: 'meta' | 'baggage' | 'conversation' | 'trace' | 'header' | 'session'
}

/** Returns true when a policy can answer a call in another way, although the call's tool or whole server has failed. */
export type HasAlternative = (lost: 'tool' | 'server') => boolean

/**
 * The facts about a call. Layers write them; `observe` reads them once, at the end. `slots` holds facts that only one
 * part of the gateway knows; several parts use the other fields.
 */
export interface CallRecord {
  readonly startedAt: Millis
  /** The id of the agent's request; undefined when the call itself has that id instead of a generated id. */
  requestId: string | number | undefined
  /** Attempts at an upstream. */
  attempts: number
  /** Attempts that a server accepted as MCP tasks; each counts when its task is over. */
  acceptedAttempts: number
  /** Whether any byte of the request was handed to an upstream. */
  sent: boolean
  /** When the first message reached the caller. After that, no retry is allowed. */
  firstByteAt: Millis | undefined
  /** Index of the last attempt's replica. */
  replica: number | undefined
  /** Index of the replica that gave no answer to the last attempt; undefined when the attempt ended otherwise. */
  failedReplica: number | undefined
  /** Number of sessions with the server that were opened again for this call. */
  recoveries: number
  /** Why attempts were rejected, when the caller gets another outcome instead; undefined for none. */
  supersededRejections: string[] | undefined
  /** Whether the call was found invalid before sending. The server is not blamed when an invalid call fails. */
  isInvalid: boolean
  /** Whether nobody waits for the call any more; an abandoned call holds no slot. */
  isAbandoned: boolean
  /**
   * Returns whether a policy can answer in another way now; if so, queues do not wait long. Undefined where no policy
   * gives other answers.
   */
  hasAlternative: HasAlternative | undefined
  /**
   * Whether the call waited in a way that `waitedMs` and `upstreamMs` do not count, such as for the answer to an equal
   * call. The gateway's overhead is then unknown.
   */
  hasWaitedElsewhere: boolean
  /** Facts of parts that the kernel does not know: see `Slot`. */
  readonly slots: unknown[]
  /** Whether the outcome is known. Unfinished work for the call no longer matters to the agent. */
  isOver: boolean
  /** Server questions that the agent has not answered yet. */
  asking: number
  /** When the first unanswered question came. */
  askingSince: Millis
  /**
   * How long the call waited for answers to earlier questions, in milliseconds. Deadlines and timeouts are paused
   * meanwhile.
   */
  askedMs: Millis
  /** The holdings that the call lends while the agent is asked, newest first; undefined for none. */
  holding: Holding | undefined
  /** Unfinished attempts at an upstream. */
  upstream: number
  /** When the first unfinished attempt began. */
  upstreamSince: Millis
  /** How long attempts ran before `upstreamSince`, in milliseconds; parallel attempts count once. */
  upstreamMs: Millis
  /** How long the gateway delayed the call on purpose, in milliseconds: before retries, for a slot, for a quota. */
  waitedMs: Millis
  /** The call's arm of an experiment, as `experiment/arm`; empty for none. */
  arm: string
  /** Whether the agent asked for the arm by name. */
  isArmAsked: boolean
  /** The task that the call belongs to; undefined when unknown. */
  intent: CallIntent | undefined
  /** The trace that records the call, 32 hexadecimal digits; undefined when the call is not traced. */
  traceId: string | undefined
}

/** Notes a rejection that the caller does not see, because another outcome replaced it. The rejection still counts. */
export function noteSupersededRejection(record: CallRecord, outcome: Outcome): void {
  if (outcome.kind === 'rejected') (record.supersededRejections ??= []).push(outcome.error.reason)
}

/** Returns the reasons of all attempts that the gateway rejected, in order; the caller may see another outcome. */
export function rejectionsIn({ supersededRejections = [] }: CallRecord, outcome: Outcome): readonly string[] {
  return outcome.kind === 'rejected' ? [...supersededRejections, outcome.error.reason] : supersededRejections
}

/** Returns the record of a call that starts now. */
export function newRecord(startedAt: Millis): CallRecord {
  return {
    startedAt,
    requestId: undefined,
    attempts: 0,
    acceptedAttempts: 0,
    sent: false,
    firstByteAt: undefined,
    replica: undefined,
    failedReplica: undefined,
    recoveries: 0,
    supersededRejections: undefined,
    isInvalid: false,
    isAbandoned: false,
    hasAlternative: undefined,
    hasWaitedElsewhere: false,
    slots: newSlots(),
    isOver: false,
    asking: 0,
    askingSince: 0,
    askedMs: 0,
    holding: undefined,
    upstream: 0,
    upstreamSince: 0,
    upstreamMs: 0,
    waitedMs: 0,
    arm: '',
    isArmAsked: false,
    intent: undefined,
    traceId: undefined,
  }
}

/** A decision, shown next to the policy's name in a span's event `breakwater.policy`. */
export interface Decision {
  readonly decision: string
  readonly reason?: string
}

/** How to count a fact. The labels `server`, `tool` and `arm` come from the call and need not be given. */
export interface Counting<Value> {
  readonly metric: MetricSpec<'counter'>
  labels?(value: Value): Readonly<Record<string, string>>
  /** The increment; default 1. */
  by?(value: Value): number
}

/** How a fact is reported when a call is over. A fact that equals its initial value is left out. */
export interface FactTelemetry<Value> {
  /** The meaning of the fact in one line, for the documentation. */
  readonly about: string
  /** The fact's key in the access log. */
  readonly log: string
  /** Whether the access log shows the fact even when nothing was noted. */
  readonly alwaysLogged?: true
  /** The key of the fact's attribute in the call's span. */
  readonly attribute?: string
  event?(value: Value): Decision
  readonly counting?: Counting<Value>
}

/** The notes on a call, by slot. */
interface Noted {
  readonly slots: unknown[]
}

/** The initial value of each slot. */
const initials: unknown[] = []

/** Returns the slots of a new record. All records have the same shape, so reading a slot is an array access. */
const newSlots = (): unknown[] => initials.slice()

/**
 * The notes of one part of the gateway on calls. Created once, when the part's module is loaded; every later record has
 * the slot.
 */
export class Slot<Value = unknown> {
  readonly initial: Value
  readonly slot: number

  constructor(initial: Value) {
    this.initial = initial
    this.slot = initials.push(initial) - 1
  }

  of({ slots }: Noted): Value {
    return slots[this.slot] as Value
  }

  note({ slots }: Noted, value: Value): void {
    slots[this.slot] = value
  }
}

/** A policy's notes on calls, reported when the call is over. `Value` is a number, a text or a flag. */
export class Fact<Value = unknown> extends Slot<Value> {
  readonly telemetry: FactTelemetry<Value>

  constructor(initial: Value, telemetry: FactTelemetry<Value>) {
    super(initial)
    this.telemetry = telemetry
  }
}

/** A fact that counts how often a policy did something to a call. */
export class CountFact extends Fact<number> {
  constructor(telemetry: FactTelemetry<number>) {
    super(0, telemetry)
  }

  add(record: Noted): void {
    this.note(record, this.of(record) + 1)
  }
}
