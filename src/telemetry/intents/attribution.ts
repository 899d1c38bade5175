import type { Call } from '../../mesh/call.ts'
import type { CallIntent } from '../../mesh/record.ts'
import { isObject, paramsOf } from '../../protocol/jsonrpc.ts'
import { readParent } from '../tracing/context.ts'

/** Where an agent says which of its tasks a call belongs to. */
export const INTENT_KEY = 'dev.breakwater/intent'

/** The same as a header, and as an entry of `baggage` (W3C), in `_meta` or as a header. */
export const INTENT_HEADER = 'x-breakwater-intent'
export const INTENT_BAGGAGE = 'breakwater.intent'

/** Longest name of a task, in characters: what is longer is none. */
export const LONGEST_INTENT = 256

/** W3C Baggage: the most that anyone has to pass on. */
const MAX_BAGGAGE = 8_192

/**
 * The task that a call belongs to, by the surest word there is: `_meta`, baggage, the trace of the agent, a header,
 * and for sessions of the older protocol the session. Undefined when there is none.
 */
export function attribute(call: Pick<Call, 'message' | 'inbound' | 'caller'>): CallIntent | undefined {
  const { message, inbound, caller } = call
  const found = paramsOf(message.value)._meta
  const meta = isObject(found) ? found : undefined
  const named = nameIn(meta?.[INTENT_KEY])
  if (named !== undefined) return { id: named, source: 'meta' }
  const carried = fromBaggage(meta?.baggage) ?? fromBaggage(inbound.baggage)
  if (carried !== undefined) return { id: carried, source: 'baggage' }
  const parent = meta?.traceparent === undefined ? undefined : readParent(meta.traceparent, undefined)
  if (parent !== undefined) return { id: parent.traceId, source: 'trace' }
  const header = nameIn(inbound[INTENT_HEADER])
  if (header !== undefined) return { id: header, source: 'header' }
  // Who takes questions as results has no session, and may stand for many.
  return caller.takesInputRequired ? undefined : { id: caller.id, source: 'session' }
}

function nameIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_INTENT ? value : undefined
}

/** `key=value;property,key=value`, the values percent-encoded (W3C Baggage). */
function fromBaggage(baggage: unknown): string | undefined {
  if (typeof baggage !== 'string' || baggage.length > MAX_BAGGAGE) return undefined
  for (const entry of baggage.split(',')) {
    const [key, value] = entry.split(';', 1)[0]!.split('=', 2)
    if (key?.trim() === INTENT_BAGGAGE) return nameIn(decoded(value?.trim() ?? ''))
  }
  return undefined
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
