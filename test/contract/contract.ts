import { answers } from './answers.ts'
import { cancellation } from './cancellation.ts'
import { endings } from './endings.ts'
import { messages } from './messages.ts'
import type { MakeSubject } from './subject.ts'

/** What every kind of upstream promises: one suite, run once per kind against the same two fixture servers. */
export function contract(kind: string, make: MakeSubject): void {
  for (const part of [answers, messages, cancellation, endings]) part(kind, make)
}
