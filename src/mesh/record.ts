import type { Millis } from './clock.ts'
import type { Outcome } from './outcome.ts'
import type { MetricSpec } from './metric-spec.ts'

/** A limited resource that a call holds, and gives back while its agent is asked. */
export interface Holding {
  /** The previous holding of the same call; undefined for none. */
  outer: Holding | undefined
  /** The agent is asked: others may have it meanwhile. */
  lend(): void
  /** The agent has answered. A promise is settled when the call has it again, or is over. */
  takeBack(): Promise<void> | undefined
}

/** A fault that was aimed at a call, for whoever accounts for it. */
export interface InjectedFault {
  readonly name: string
  readonly type: string
  readonly side: 'upstream' | 'client'
  /** The try that it hit, from 1. */
  readonly attempt: number
  /**
   * `not_applicable`: there was nothing for it to do at such a call. `not_reached`: the call, or the fault, was over before it
   * took effect. `shadow`: it was decided and not done.
   */
  status: 'applied' | 'not_applicable' | 'not_reached' | 'shadow'
  /** Whether the call was sent again after the try that it hit: a retry, or a hedge. */
  resent?: boolean
  note?: Readonly<Record<string, unknown>>
}

/** All fates of an injected fault. */
export const fates = [
  /** The agent got a good answer in spite of it, and no later. */
  'masked',
  /** The agent got a good answer, and had to wait for it. */
  'delayed',
  /** An error, or word that something is missing, reached the agent: it can fail safely. */
  'surfaced',
  /** A corrupted reply reached the agent, looking fine. */
  'escaped',
  /** The call, or the fault, was over before it took effect. */
  'not_reached',
] as const

export type Fate = (typeof fates)[number]

/** The fate of a fault, by the answer that the agent got. */
export interface FaultFate {
  /** As the record of the call that it hit has it. */
  readonly fault: InjectedFault
  readonly fate: Fate
  /** How long the agent had to wait because of it, in milliseconds; only where that is its fate. */
  readonly delayedMs?: Millis
  /** Whether it hit an earlier call, whose reply was kept and is this call's answer: it has been accounted for there. */
  readonly isKept?: true
}

/** The task of an agent that a call belongs to. */
export interface CallIntent {
  /** As the agent named it, or its trace, or its session: unique only together with `source` and the tenant. */
  readonly id: string
  /** The source of the id, from the surest to the vaguest. */
  readonly source: 'meta' | 'baggage' | 'conversation' | 'trace' | 'header' | 'session'
}

/** Whether there is another answer for a call whose tool has failed, or whose whole server is lost. */
export type HasAlternative = (lost: 'tool' | 'server') => boolean

/**
 * The flat facts of one call. Layers write them, `observe` reads them once, at the end. The knowledge of a single policy stands in
 * `facts`; the other fields hold the knowledge that the data path and several of its parts share.
 */
export interface CallRecord {
  readonly startedAt: Millis
  /** The id of its agent's request; undefined where the call itself has that id, and not one of ours. */
  requestId: string | number | undefined
  /** Tries at an upstream. */
  attempts: number
  /** Tries that a server accepted as MCP tasks: each counts when the task is over. */
  acceptedAttempts: number
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
  /** Why tries of it were rejected that are not what its caller is told: undefined for none. */
  supersededRejections: string[] | undefined
  /** Whether it was found to be wrong before it was sent: then a bad end of it is not laid to its server. */
  isInvalid: boolean
  /** Whether nobody waits for it any more: it holds no slot. */
  isAbandoned: boolean
  /** Whether a policy has another answer now: then nothing waits long. Undefined where no policy gives other answers. */
  hasAlternative: HasAlternative | undefined
  /** Whether it waited in a way that is in neither `waitedMs` nor `upstreamMs`, such as for the outcome of an equal call: its overhead is not known. */
  hasWaitedElsewhere: boolean
  /** The notes of policies, by slot: see `Fact`. */
  readonly facts: unknown[]
  /** Faults that were aimed at it; undefined for none. */
  faults: InjectedFault[] | undefined
  /**
   * The fates of the applied faults, and of the faults of earlier calls that the answer still shows. Known when the
   * call is over; undefined for none.
   */
  fates: readonly FaultFate[] | undefined
  /** Faults that had hit its server when a breaker kept it from there; undefined for none. */
  rejectedOver: string[] | undefined
  /** The value of the HTTP header that tells the agent of the call's faults; undefined unless an operator asked for the header. */
  debugHeader: string | undefined
  /** Whether its outcome is known: whatever is still under way for it can make no difference to its agent. */
  isOver: boolean
  /** Questions of the server that the agent has not answered yet. */
  asking: number
  /** When the first of them came. */
  askingSince: Millis
  /** How long the agent was asked before that, in milliseconds: deadlines and timeouts stand still meanwhile. */
  askedMs: Millis
  /** The holdings that the call gives back while the agent is asked, newest first; undefined for none. */
  holding: Holding | undefined
  /** Tries at an upstream that are under way. */
  upstream: number
  /** When the first of them began. */
  upstreamSince: Millis
  /** How long any try was under way before that, in milliseconds; of tries at the same time, once. */
  upstreamMs: Millis
  /** How long the gateway kept it waiting on purpose, in milliseconds: before retries, for a slot, for a quota. */
  waitedMs: Millis
  /** The arm of an experiment that it runs in, as `experiment/arm`; empty for none. */
  arm: string
  /** Whether its agent has asked for that arm by name. */
  isArmAsked: boolean
  /** The state of experiments for the call's unit; undefined when the call is in no arm. Only experiments read it. */
  unit: object | undefined
  /** The task that it belongs to; undefined when nothing says so. */
  intent: CallIntent | undefined
  /** The trace that it is recorded in, 32 hexadecimal digits; undefined when it is not. */
  traceId: string | undefined
  /** The notes of tracing on the call until the call is over; only tracing reads them. */
  span: unknown
  /** The same of the recorder; undefined when it is not recorded. */
  recording: object | undefined
}

/** Notes a rejection in place of which another outcome is told: it took place, and is counted. */
export function noteSupersededRejection(record: CallRecord, outcome: Outcome): void {
  if (outcome.kind === 'rejected') (record.supersededRejections ??= []).push(outcome.error.reason)
}

/** A record for a call that starts now. */
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
    facts: newFacts(),
    faults: undefined,
    fates: undefined,
    rejectedOver: undefined,
    debugHeader: undefined,
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
    unit: undefined,
    intent: undefined,
    traceId: undefined,
    span: undefined,
    recording: undefined,
  }
}

/** A decision as a span's event `breakwater.policy` shows it, next to the name of the policy. */
export interface Decision {
  readonly decision: string
  readonly reason?: string
}

/** The way to count a fact. The labels `server`, `tool` and `arm` are the call's, and need not be given. */
export interface Counting<Value> {
  readonly metric: MetricSpec<'counter'>
  labels?(value: Value): Readonly<Record<string, string>>
  /** How many; 1 unless given. */
  by?(value: Value): number
}

/** How people learn of a fact, once a call is over. A fact that equals its initial value is left out. */
export interface FactTelemetry<Value> {
  /** The meaning of the fact, in one line, for the documentation. */
  readonly about: string
  /** Its key in a line of the access log. */
  readonly log: string
  /** Whether it stands in the access log also where nothing was noted. */
  readonly alwaysLogged?: true
  /** The attribute of the call's span. */
  readonly attribute?: string
  event?(value: Value): Decision
  readonly counting?: Counting<Value>
}

/** The notes on a call, by the slots of facts. */
interface Noted {
  readonly facts: unknown[]
}

/** The initial value of each slot: the slots of a call on which nothing was noted. */
const initials: unknown[] = []

/** The slots of a new record. All have the same shape, so that a look into one is a look into an array. */
export const newFacts = (): unknown[] => initials.slice()

/**
 * Something that a policy notes on calls. It is made once, when the policy's module is loaded, and has a slot of its own
 * in every record from then on. `Value` is a number, a text or a flag.
 */
export class Fact<Value = unknown> {
  readonly initial: Value
  readonly telemetry: FactTelemetry<Value>
  readonly slot: number

  constructor(initial: Value, telemetry: FactTelemetry<Value>) {
    this.initial = initial
    this.telemetry = telemetry
    this.slot = initials.push(initial) - 1
  }

  of({ facts }: Noted): Value {
    return facts[this.slot] as Value
  }

  note({ facts }: Noted, value: Value): void {
    facts[this.slot] = value
  }
}

/** A fact that counts: how often a policy did something to a call. */
export class CountFact extends Fact<number> {
  constructor(telemetry: FactTelemetry<number>) {
    super(0, telemetry)
  }

  add(record: Noted): void {
    this.note(record, this.of(record) + 1)
  }
}
