import type { MetricSpec } from './metric-spec.ts'

/** What a span's event `breakwater.policy` says of a decision, next to the name of the policy. */
export interface Decision {
  readonly decision: string
  readonly reason?: string
}

/** What is counted of a fact. The labels `server`, `tool` and `arm` are the call's, and need not be given. */
export interface Counting<Value> {
  readonly metric: MetricSpec<'counter'>
  labels?(value: Value): Readonly<Record<string, string>>
  /** How many; 1 unless given. */
  by?(value: Value): number
}

/** How people learn of a fact, once a call is over. A fact that equals its initial value is left out. */
export interface FactTelemetry<Value> {
  /** What it says, in one line, for the documentation. */
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

/** What was noted on a call, by the slots of facts. */
interface Noted {
  readonly facts: unknown[]
}

/** What stands in each slot of a call on which nothing was noted. */
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
