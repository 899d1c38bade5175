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
  /** The agent got a good answer in spite of the fault, and no later. */
  'masked',
  /** The agent got a good answer, but later. */
  'delayed',
  /** An error or a notice of missing data reached the agent, so the agent can fail safely. */
  'surfaced',
  /** A corrupted reply reached the agent and looked fine. */
  'escaped',
  /** The call or the fault ended before the fault took effect. */
  'not_reached',
] as const

export type Fate = (typeof fates)[number]

/** The fate of a fault, judged by the agent's answer. */
export interface FaultFate {
  /** As found in the record of the call that the fault hit. */
  readonly fault: InjectedFault
  readonly fate: Fate
  /** How long the agent waited because of the fault, in milliseconds; only with the fate `delayed`. */
  readonly delayedMs?: Millis
  /** Whether the fault hit, and was counted for, an earlier call whose stored reply answers this call. */
  readonly isKept?: true
}

/** Faults aimed at a call; undefined for none. */
export const injectedFaults = new Slot<InjectedFault[] | undefined>(undefined)

/** Fates of applied faults, and of earlier calls' faults in the answer. Set at the call's end; undefined for none. */
export const faultFates = new Slot<readonly FaultFate[] | undefined>(undefined)

/** Names of the faults that had hit the server when a breaker rejected the call; undefined for none. */
export const rejectedOver = new Slot<string[] | undefined>(undefined)

/** The HTTP header that tells the agent about the call's faults; undefined unless an operator asked for the header. */
export const debugHeader = new Slot<string | undefined>(undefined)

/** Names of faults by the error or result that the faults made. Kept by identity, so nothing shows on the wire. */
const makers = new WeakMap<object, readonly string[]>()

/** Marks an outcome with the names of the faults behind the outcome. */
export function withInjected(outcome: Outcome, names: readonly string[]): Outcome {
  if (names.length === 0) return outcome
  if (outcome.kind !== 'answered') return { ...outcome, error: { ...outcome.error, injected: names } }
  const { error, result } = outcome.result.value
  for (const part of [error, result]) if (typeof part === 'object' && part !== null) makers.set(part, names)
  return outcome
}

/** Returns the names of the faults behind an answer's error or result; empty for a server's own. */
export function makersOf(part: object): readonly string[] {
  return makers.get(part) ?? []
}

/** Returns the names of faults as the end of a message; empty without faults. */
export function injectedBy(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (injected: ${names.join(', ')})`
}

/** Returns a gateway error about an answer's error or result, with the names of the faults behind the part. */
export function about(part: object, error: GatewayError): GatewayError {
  const injected = makers.get(part)
  return injected === undefined ? error : { ...error, injected }
}
