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

/** An error of the gateway about the error or the result of an answer: it names the faults that made that part. */
export function about(part: object, error: GatewayError): GatewayError {
  const injected = makers.get(part)
  return injected === undefined ? error : { ...error, injected }
}
