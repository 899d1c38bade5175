import type { Call, Outcome, Partial, Verdict } from '../../mesh/call.ts'
import { gatewayError, type GatewayError, type Reason } from '../../mesh/errors.ts'
import type { Effect } from '../../mesh/policy.ts'
import { replaceAt } from '../../protocol/json-span.ts'
import { isFinal } from '../state/final-result.ts'

/** What is remembered of a call that is over. */
export type Kept =
  | {
      readonly kind: 'answered'
      readonly text: string
      readonly bytes: number
      readonly status: number
      readonly verdict: Verdict
      readonly partial: Partial | undefined
    }
  /** It may have run, and nobody knows how it ended. */
  | { readonly kind: 'failed'; readonly error: GatewayError }
  /** It has run, and its answer was too large to keep. */
  | { readonly kind: 'too_large'; readonly bytes: number; readonly limit: number }

/** Largest answer that is kept, in bytes. */
const MAX_ANSWER = 1024 ** 2

/** Ends with which a server says that it did not run what it got. */
const refused: ReadonlySet<Reason> = new Set([
  'session_lost',
  'upstream_rate_limited',
  'upstream_refused',
  'upstream_unauthorized',
])

/** What to remember of an outcome; undefined when the same call may run once more. `maxSize` is in bytes. */
export function keep(outcome: Outcome, effect: Effect, maxSize: number): Kept | undefined {
  switch (outcome.kind) {
    case 'rejected':
      return undefined
    case 'failed': {
      const { error } = outcome
      const repeatable = effect === 'read_only' || effect === 'idempotent'
      return !error.sent || repeatable || refused.has(error.reason) ? undefined : { kind: 'failed', error }
    }
    case 'answered': {
      const { result, verdict, partial } = outcome
      if (!isFinal(result)) return undefined
      const { text, status } = result
      const bytes = Buffer.byteLength(text)
      const limit = Math.min(MAX_ANSWER, maxSize)
      if (bytes > limit) return { kind: 'too_large', bytes, limit }
      return { kind: 'answered', text, bytes, status, verdict, partial }
    }
  }
}

/** The outcome once more, under the id of another call. */
export function replay(kept: Kept, call: Call): Outcome {
  call.record.replayed = 'stored'
  switch (kept.kind) {
    case 'answered': {
      const text = replaceAt(kept.text, ['id'], call.id)
      const value = JSON.parse(text) as Call['message']['value']
      return answered({ text, value, status: kept.status }, kept.verdict, kept.partial)
    }
    case 'failed': {
      const { message } = kept.error
      // Its conversation was ended, but nobody has cancelled the call that asks now.
      const reason = kept.error.reason === 'cancelled' ? 'upstream_disconnected' : kept.error.reason
      const words = `${message}; a call with this idempotency key may have run, and is not run again`
      return { kind: 'failed', error: gatewayError(reason, words, { sent: true }) }
    }
    case 'too_large': {
      const words = `the call with this idempotency key has run; its answer of ${kept.bytes} bytes was too large to keep (limit ${kept.limit})`
      return { kind: 'failed', error: gatewayError('idempotency_conflict', words, { sent: true }) }
    }
  }
}

/** The outcome of one call as that of another, which waited for it. */
export function shared(outcome: Outcome, { id }: Call): Outcome {
  if (outcome.kind !== 'answered') return outcome
  const { result, verdict, partial } = outcome
  const text = replaceAt(result.text, ['id'], id)
  return answered({ text, value: { ...result.value, id }, status: result.status }, verdict, partial)
}

function answered(
  result: (Outcome & { kind: 'answered' })['result'],
  verdict: Verdict,
  partial: Partial | undefined,
): Outcome {
  return { kind: 'answered', result, verdict, ...(partial === undefined ? {} : { partial }) }
}
