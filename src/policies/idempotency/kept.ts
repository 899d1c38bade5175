import { parseExactly } from '../../protocol/json-parse.ts'
import { z } from 'zod'
import type { Call, Outcome, Partial, Verdict } from '../../mesh/call.ts'
import { gatewayError, reasons, type GatewayError, type Reason } from '../../mesh/errors.ts'
import type { Effect } from '../../mesh/policy.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
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

/** What a record of a call holds. */
export interface Stored {
  /** Of what was run: one key stands for one of these. */
  readonly fingerprint: string
  readonly kept: Kept
}

/** Largest answer that is kept, in bytes. */
const MAX_ANSWER = 1024 ** 2

/**
 * Ends with which a server says that it did not run what it got: HTTP 401, 403 and 429 come before any processing
 * (RFC 9110, 15.5; RFC 6585, 4). Another status may come of the tool itself: a 404 of what it was to change, a 400
 * of a session that it was to book.
 */
const refused: ReadonlySet<Reason> = new Set(['upstream_rate_limited', 'upstream_unauthorized'])

/** Ends of the conversation of the call that ran. Whoever gets its outcome has one of its own, which goes on. */
const ofConversation: ReadonlySet<Reason> = new Set(['cancelled', 'session_lost'])

/** What is known of a call from when it began, should the process not live to see how it ends. */
export const interrupted: Kept = {
  kind: 'failed',
  error: gatewayError('upstream_disconnected', 'the gateway ended while the call was under way', {
    sent: true,
  }),
}

/** Whether a call of this effect does no harm when it runs twice. */
export function isRepeatable(effect: Effect): boolean {
  return effect === 'read_only' || effect === 'idempotent'
}

/** What to remember of an outcome; undefined when the same call may run once more. `maxSize` is in bytes. */
export function keep(outcome: Outcome, effect: Effect, maxSize: number): Kept | undefined {
  switch (outcome.kind) {
    case 'rejected':
      return undefined
    case 'failed': {
      const { error } = outcome
      return !error.sent || isRepeatable(effect) || refused.has(error.reason)
        ? undefined
        : { kind: 'failed', error }
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

const isText = (value: unknown) => typeof value === 'string'

/** What this gateway wrote; that of another version of it may be something else. */
const stored = z.object({
  fingerprint: z.string(),
  kept: z.discriminatedUnion('kind', [
    z
      .object({
        kind: z.literal('answered'),
        text: z.string(),
        bytes: z.int().min(0),
        status: z.int(),
        verdict: z.custom<Verdict>(isText),
        partial: z.custom<Partial>(isObject).optional(),
      })
      .transform((answer) => ({ ...answer, partial: answer.partial })),
    z.object({
      kind: z.literal('failed'),
      error: z
        .object({
          reason: z.custom<Reason>((value) => isText(value) && Object.hasOwn(reasons, value)),
          message: z.string(),
        })
        .transform(({ reason, message }) => gatewayError(reason, message, { sent: true })),
    }),
    z.object({ kind: z.literal('too_large'), bytes: z.int().min(0), limit: z.int().min(0) }),
  ]),
})

/** A record as an earlier process wrote it; undefined for anything else. */
export function readStored(value: unknown): Stored | undefined {
  return stored.safeParse(value).data
}

/** The outcome once more, under the id of another call. */
export function replay(kept: Kept, call: Call): Outcome {
  call.record.replayed = 'stored'
  switch (kept.kind) {
    case 'answered': {
      const text = replaceAt(kept.text, ['id'], call.id)
      const value = parseExactly(text) as Call['message']['value']
      return answered({ text, value, status: kept.status }, kept.verdict, kept.partial)
    }
    case 'failed': {
      const { message, reason } = forAnother(kept.error)
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
  if (outcome.kind === 'rejected') return outcome
  if (outcome.kind === 'failed') return { kind: 'failed', error: forAnother(outcome.error) }
  const { result, verdict, partial } = outcome
  const text = replaceAt(result.text, ['id'], id)
  return answered({ text, value: { ...result.value, id }, status: result.status }, verdict, partial)
}

/** An error of one call as that of another: nobody has cancelled that, and its session is not lost. */
function forAnother(error: GatewayError): GatewayError {
  return ofConversation.has(error.reason) ? { ...error, reason: 'upstream_disconnected' } : error
}

function answered(
  result: (Outcome & { kind: 'answered' })['result'],
  verdict: Verdict,
  partial: Partial | undefined,
): Outcome {
  return { kind: 'answered', result, verdict, ...(partial === undefined ? {} : { partial }) }
}
