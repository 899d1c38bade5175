import type { GatewayError } from './errors.ts'
import type { Outcome } from './outcome.ts'

/** Names of faults by the error or result that the faults made. Kept by identity, so nothing shows on the wire. */
const makers = new WeakMap<object, readonly string[]>()

/** Marks an outcome with the names of the faults that made the outcome. */
export function withInjected(outcome: Outcome, names: readonly string[]): Outcome {
  if (names.length === 0) return outcome
  if (outcome.kind !== 'answered') return { ...outcome, error: { ...outcome.error, injected: names } }
  const { error, result } = outcome.result.value
  for (const part of [error, result]) if (typeof part === 'object' && part !== null) makers.set(part, names)
  return outcome
}

/** Returns the names of the faults that made an answer's error or result; empty for a server's own. */
export function makersOf(part: object): readonly string[] {
  return makers.get(part) ?? []
}

/** Returns the names of faults as the end of a message; empty without faults. */
export function injectedBy(names: readonly string[]): string {
  return names.length === 0 ? '' : ` (injected: ${names.join(', ')})`
}

/** Returns a gateway error about an answer's error or result, with the names of the faults that made the part. */
export function about(part: object, error: GatewayError): GatewayError {
  const injected = makers.get(part)
  return injected === undefined ? error : { ...error, injected }
}
