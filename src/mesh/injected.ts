import type { GatewayError } from './errors.ts'
import type { Outcome } from './outcome.ts'

/** Errors and results of servers that faults made. Known by identity, so that nothing of it shows on the wire. */
const makers = new WeakMap<object, readonly string[]>()

/** Notes on an outcome the names of the faults that made it. */
export function withInjected(outcome: Outcome, names: readonly string[]): Outcome {
  if (names.length === 0) return outcome
  if (outcome.kind !== 'answered') return { ...outcome, error: { ...outcome.error, injected: names } }
  const { error, result } = outcome.result.value
  for (const part of [error, result]) if (typeof part === 'object' && part !== null) makers.set(part, names)
  return outcome
}

/** The names of the faults that made the error or the result of an answer; none of one that is as its server gave it. */
export function makersOf(part: object): readonly string[] {
  return makers.get(part) ?? []
}

/** The end of a message that faults caused: their names; nothing where there are none. */
export function injectedBy(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (injected: ${names.join(', ')})`
}

/** An error of the gateway about the error or the result of an answer: it names the faults that made that part. */
export function about(part: object, error: GatewayError): GatewayError {
  const injected = makers.get(part)
  return injected === undefined ? error : { ...error, injected }
}
