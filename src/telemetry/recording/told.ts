import type { Outcome } from '../../mesh/call.ts'
import { isUncertain } from '../../mesh/classify.ts'
import type { Effect } from '../../mesh/policy.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { byteLengthOf } from '../../protocol/large-message.ts'
import { metaOf, PARTIAL_KEY } from '../../protocol/meta.ts'
import type { Told } from './format.ts'

/** Largest reply that is compared with others, in bytes. */
const MAX_REPLY = 256 * 1024

/** Deepest reply that is compared, in levels. */
const MAX_DEPTH = 100

/** Returns the parts of a reply that its agent can act on; undefined for none. `effect`: of running the call again. */
export function toldOf(outcome: Outcome, effect: Effect): Told | undefined {
  if (outcome.kind === 'answered') {
    const retryAfterMs = retryAfterIn(outcome)
    if (!isPartial(outcome)) return retryAfterMs === undefined ? undefined : { retryAfterMs }
    return { partial: true, ...(retryAfterMs !== undefined && { retryAfterMs }) }
  }
  const { error } = outcome
  // An agent that first has to check whether its call has run is told no time.
  const retryAfterMs = isUncertain(error, effect) ? undefined : error.retryAfterMs
  return { sent: error.sent, ...(retryAfterMs !== undefined && { retryAfterMs: Math.ceil(retryAfterMs) }) }
}

type Answered = Outcome & { readonly kind: 'answered' }

function isPartial({ partial, verdict, result }: Answered): boolean {
  if (partial !== undefined || verdict === 'partial_declared') return true
  // A large reply is read by nobody for this flag alone.
  return byteLengthOf(result) <= MAX_REPLY && isObject(metaOf(result.value, 'result', PARTIAL_KEY))
}

/** Returns the time in the server's own error, in milliseconds; undefined for none. */
function retryAfterIn({ result }: Answered): number | undefined {
  const { error } = result.value
  const data = isObject(error) && isObject(error.data) ? error.data : {}
  const { retryAfterMs } = data
  const isTime = typeof retryAfterMs === 'number' && retryAfterMs >= 0
  return isTime && retryAfterMs <= Number.MAX_SAFE_INTEGER ? retryAfterMs : undefined
}

/**
 * Returns the same text for replies with the same content; undefined for a reply too large or too deep to compare.
 * Leaves out the reply's `_meta`, which models do not see, and the varying times and counts in errors of the gateway.
 */
export function contentOf(outcome: Outcome): string | undefined {
  const { wire } = outcome
  if (wire?.body !== undefined) return JSON.stringify(['raw', wire.status, wire.body.slice(0, MAX_REPLY)])
  if (outcome.kind !== 'answered') {
    const { reason, sent } = outcome.error
    return JSON.stringify(['failed', reason, sent])
  }
  if (isTooLarge(outcome)) return undefined
  const { error, result: content } = outcome.result.value
  const { _meta: _, ...seen } = isObject(content) ? content : { content }
  return canonicalJson([error ?? null, seen, isPartial(outcome)], { maxDepth: MAX_DEPTH })
}

/** Returns the content of an answer, with the result's `_meta`; undefined for no answer, and for a large answer. */
export function answerIn(outcome: Outcome): unknown {
  if (outcome.kind !== 'answered' || isTooLarge(outcome)) return undefined
  const { error, result } = outcome.result.value
  return error ?? result
}

/** Whether an outcome has an answer too large to compare. */
export function isTooLarge(outcome: Outcome): boolean {
  return outcome.kind === 'answered' && byteLengthOf(outcome.result) > MAX_REPLY
}
