import { answers } from './answers.ts'
import { cancellation } from './cancellation.ts'
import { endings } from './endings.ts'
import { messages } from './messages.ts'
import type { MakeSubject, Traits } from './subject.ts'

/** The contract of every kind of upstream: one suite, run once per kind against the same two fixture servers. */
export function contract(kind: string, make: MakeSubject, traits: Traits = {}): void {
  for (const part of [answers, messages, cancellation, endings]) part(kind, make, traits)
}
