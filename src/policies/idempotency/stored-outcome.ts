import { parseExactly } from '../../protocol/json-parse.ts'
import { z } from 'zod'
import type { Call, Outcome, Partial, Verdict } from '../../mesh/call.ts'
import { mayBeRepeated } from '../../mesh/classify.ts'
import {
  gatewayError,
  type GatewayError,
  type PolicyReason,
  type Reason,
  reasons,
} from '../../mesh/errors.ts'
import { Fact } from '../../mesh/record.ts'
import { counter } from '../../mesh/metric-spec.ts'
import type { Effect } from '../../mesh/policy.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { replaceAt, replacing } from '../../protocol/json-span.ts'
import { byteLengthOf, edited } from '../../protocol/large-message.ts'
import { isFinal } from '../state/final-result.ts'
import { inTurn } from '../state/in-turn.ts'

export const idempotencyConflict = {
  name: 'idempotency_conflict',
  code: 1409,
  retryable: false,
  about: 'The idempotency key stands for another call, or its answer was not kept or is for another agent.',
} as const satisfies PolicyReason

export const replayed = new Fact<'no' | 'stored' | 'joined'>('no', {
  about:
    'The answer of an earlier call with the same key, either finished (`stored`) or under way (`joined`).',
  log: 'replayed',
  event: (how) => ({ decision: 'replayed', reason: how }),
  counting: {
    metric: counter(
      'idempotent_replays_total',
      'Calls answered with the answer of an earlier call, by whether the earlier call was over or still under way.',
      ['server', 'how', 'arm'],
      'servers × 2 × arms',
    ),
    labels: (how) => ({ how }),
  },
})

export type StoredOutcome =
  | {
      readonly kind: 'answered'
      readonly text: string
      readonly bytes: number
      readonly status: number
      readonly verdict: Verdict
      readonly partial: Partial | undefined
    }
  /** The call may have run, with an unknown end. */
  | { readonly kind: 'failed'; readonly error: GatewayError; readonly verdict?: Verdict | undefined }
  /** The call has run; its answer was too large to keep. */
  | { readonly kind: 'too_large'; readonly bytes: number; readonly limit: number }
  /** The call has run; its answer made room for answers of later calls. */
  | { readonly kind: 'made_room'; readonly bytes: number }

/** The tenant and the client charged for a key, by the names used for counting. */
export interface Share {
  readonly tenant: string
  readonly client: string
}

/** The facts known when a call begins. */
export interface Begun {
  /** Identifies the work: a key stands for a single fingerprint. */
  readonly fingerprint: string
  /** Identifies the only caller that may read the answer; empty when every caller with the key's identity may. */
  readonly reader: string
  readonly share: Share
}

export interface Stored extends Begun {
  readonly kept: StoredOutcome
}

/** Largest answer that is kept, in bytes. */
const MAX_ANSWER = 1024 ** 2

/** Reasons about the first caller's session only: other callers get `upstream_disconnected`. */
const ofSession: ReadonlySet<string> = new Set<Reason>(['cancelled', 'session_lost'])

/** The outcome recorded at the start of a call, in case the process dies before the call ends. */
export const interrupted: StoredOutcome = {
  kind: 'failed',
  error: gatewayError('upstream_disconnected', 'the gateway ended while the call was under way', {
    sent: true,
  }),
}

/** Returns the outcome to keep; undefined when the same call may run once more. `maxSize` is in bytes. */
export function keep(outcome: Outcome, effect: Effect, maxSize: number): StoredOutcome | undefined {
  switch (outcome.kind) {
    case 'rejected':
      return undefined
    case 'failed': {
      const { error, verdict } = outcome
      return mayBeRepeated(error, effect) ? undefined : failed(error, verdict)
    }
    case 'answered': {
      const { result, verdict, partial } = outcome
      if (!isFinal(result)) return undefined
      const bytes = byteLengthOf(result)
      const limit = Math.min(MAX_ANSWER, maxSize)
      if (bytes > limit) return { kind: 'too_large', bytes, limit }
      const { text, status } = result
      return { kind: 'answered', text, bytes, status, verdict, partial }
    }
  }
}

const isText = (value: unknown) => typeof value === 'string'

/** The records of this gateway version; other versions may write other records. */
const stored = z.object({
  fingerprint: z.string(),
  reader: z.string(),
  share: z.object({ tenant: z.string(), client: z.string() }),
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
      verdict: z.custom<Verdict>(isText).optional(),
      error: z
        .object({
          reason: z.string(),
          code: z.int().default(reasons.internal.code),
          retryable: z.boolean().default(false),
          message: z.string(),
        })
        // Unknown details of an error must not make the record worthless, or its call would run again.
        .transform((error): GatewayError => ({ ...error, sent: true, retryAfterMs: undefined })),
    }),
    z.object({ kind: z.literal('too_large'), bytes: z.int().min(0), limit: z.int().min(0) }),
    z.object({ kind: z.literal('made_room'), bytes: z.int().min(0) }),
  ]),
})

/** Returns an earlier process's record; undefined for anything else. */
export function readStored(value: unknown): Stored | undefined {
  return stored.safeParse(value).data
}

/** Returns the outcome once more, under the id of another call. */
export async function replay(kept: StoredOutcome, call: Call): Promise<Outcome> {
  replayed.note(call.record, 'stored')
  return inTurn(kept.kind === 'answered' ? kept.text.length : 0, call, () => replayOf(kept, call))
}

function replayOf(kept: StoredOutcome, call: Call): Outcome {
  switch (kept.kind) {
    case 'answered': {
      const text = replaceAt(kept.text, ['id'], call.id)
      const value = parseExactly(text) as Call['message']['value']
      return answered({ text, value, status: kept.status }, kept.verdict, kept.partial)
    }
    case 'failed': {
      const { verdict } = kept
      const error = forAnother(kept.error)
      const message = `${error.message}; a call with this idempotency key may have run, and is not run again`
      return failed({ ...error, message, sent: true, retryAfterMs: undefined }, verdict)
    }
    case 'too_large':
      return withoutAnswer(kept.bytes, `was too large to keep (limit ${kept.limit})`)
    case 'made_room':
      return withoutAnswer(kept.bytes, 'was dropped to make room for later answers (`maxSize`)')
  }
}

function withoutAnswer(bytes: number, why: string): Outcome {
  return notRunAgain(`the call with this idempotency key has run; its answer of ${bytes} bytes ${why}`)
}

/** Rejects a call because an earlier call with its key was sent; the rejection says nothing about the server. */
function notRunAgain(words: string): Outcome {
  const error = gatewayError(idempotencyConflict, words, { sent: true })
  return { kind: 'rejected', error, by: 'idempotency' }
}

/** Rejects a call first sent under another `Authorization`: no second run, and the answer is for the other caller. */
export function ofAnother(): Outcome {
  return notRunAgain(
    'a call with this idempotency key was sent with another Authorization: it may have run, and is not run again; its answer is only for the same Authorization, or for a named tenant',
  )
}

/** Returns a call's outcome for another call that waited for it. */
export function shared(outcome: Outcome, { id }: Call): Outcome {
  if (outcome.kind === 'rejected') return outcome
  if (outcome.kind === 'failed') return failed(forAnother(outcome.error), outcome.verdict)
  const { result, verdict, partial } = outcome
  const own = edited(result, (text) => replacing(text, ['id'], id), { ...result.value, id })
  return answered(own, verdict, partial)
}

/** Returns a call's error for another call: nobody has cancelled the other call, and its session is not lost. */
function forAnother(error: GatewayError): GatewayError {
  return ofSession.has(error.reason) ? gatewayError('upstream_disconnected', error.message, error) : error
}

function failed(error: GatewayError, verdict: Verdict | undefined): Outcome & { kind: 'failed' } {
  return { kind: 'failed', error, ...(verdict === undefined ? {} : { verdict }) }
}

function answered(
  result: (Outcome & { kind: 'answered' })['result'],
  verdict: Verdict,
  partial: Partial | undefined,
): Outcome {
  return { kind: 'answered', result, verdict, ...(partial === undefined ? {} : { partial }) }
}
