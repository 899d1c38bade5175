import type { Millis } from './clock.ts'
import type { GatewayError } from './errors.ts'
import type { Outcome } from './outcome.ts'
import { Slot } from './record.ts'

/** A fault aimed at a call, for accounting. */
export interface InjectedFault {
  readonly name: string
  readonly type: string
  readonly side: 'upstream' | 'client'
  /** The number of the attempt hit by the fault, from 1. */
  readonly attempt: number
  /**
   * `not_applicable`: the fault had nothing to do for such a call. `not_reached`: the call or the fault ended before
   * the fault took effect. `shadow`: the fault was decided but not carried out.
   */
  status: 'applied' | 'not_applicable' | 'not_reached' | 'shadow'
  /** Whether the call was sent again after that attempt, by a retry or a hedge. */
  resent?: boolean
  note?: Readonly<Record<string, unknown>>
}

/** All fates of an injected fault. */
export const fates = [
  /** The agent got a good answer in spite of the fault, and without delay. */
  'masked',
  /** The agent got a good answer, but with a delay. */
  'delayed',
  /** An error or a notice of missing data reached the agent, so the agent can fail safely. */
  'surfaced',
  /** A corrupted reply reached the agent and looked correct. */
  'escaped',
  /** The call or the fault ended before the fault took effect. */
  'not_reached',
] as const

export type Fate = (typeof fates)[number]

/** The fate of a fault, judged by the agent's answer. */
export interface FaultFate {
  /** The fault, as stored in the record of the call that it hit. */
  readonly fault: InjectedFault
  readonly fate: Fate
  /** How long the agent waited because of the fault, in milliseconds; only with the fate `delayed`. */
  readonly delayedMs?: Millis
  /**
   * True when the fault hit an earlier call, whose stored reply answers this call. The fault was counted for the
   * earlier call.
   */
  readonly isKept?: true
  /**
   * The values that the fault put into the agent's reply, as text; only with the fate `escaped`. Absent when the fault
   * cannot tell.
   */
  readonly values?: readonly string[]
}

/** Faults aimed at a call; undefined for none. */
export const injectedFaults = new Slot<InjectedFault[] | undefined>(undefined)

/** Fates of applied faults, and of earlier calls' faults in the answer. Set at the call's end; undefined for none. */
export const faultFates = new Slot<readonly FaultFate[] | undefined>(undefined)

/** Names of the faults that had hit the server when a breaker rejected the call; undefined for none. */
export const rejectedOver = new Slot<string[] | undefined>(undefined)

/** The HTTP header that tells the agent about the call's faults; undefined unless an operator asked for the header. */
export const debugHeader = new Slot<string | undefined>(undefined)

/**
 * Names of faults by the error object or result object that they made. Names are kept outside the objects, never sent.
 */
const makers = new WeakMap<object, readonly string[]>()

/** Returns the outcome, marked with the names of the faults that caused it. */
export function withInjected(outcome: Outcome, names: readonly string[]): Outcome {
  if (names.length === 0) return outcome
  if (outcome.kind !== 'answered') return { ...outcome, error: { ...outcome.error, injected: names } }
  const { error, result } = outcome.result.value
  for (const part of [error, result]) if (typeof part === 'object' && part !== null) makers.set(part, names)
  return outcome
}

/** Returns the names of the faults that made an error or result; empty when the server made it. */
export function makersOf(part: object): readonly string[] {
  return makers.get(part) ?? []
}

/** Returns the names of faults as the end of a message; empty without faults. */
export function injectedBy(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (injected: ${names.join(', ')})`
}

/** Returns `error`, with the names of the faults that made `part` (the error or result of an answer). */
export function about(part: object, error: GatewayError): GatewayError {
  const injected = makers.get(part)
  return injected === undefined ? error : { ...error, injected }
}
