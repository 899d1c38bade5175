import { derive, type Call, type Message } from '../../mesh/call.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { locate } from '../../protocol/json-span.ts'
import { withMeta } from '../../protocol/meta.ts'
import { withEntry } from '../../protocol/with-entry.ts'
import { CallTrace } from './call-trace.ts'

/** What a server is told of the trace that it takes part in, as W3C Trace Context writes it. */
export interface Stamp {
  readonly traceparent: string
  readonly tracestate: string | undefined
}

/** The headers of an attempt: they stay with it whatever else is changed on its way, and hedges have their own. */
export function stampHeaders(headers: Call['headers'], trace: CallTrace, spanId: string): Call['headers'] {
  const traceparent = `00-${trace.traceId}-${spanId}-${trace.sampled ? '01' : '00'}`
  const tracestate = trace.parent?.state
  if (tracestate !== undefined) return { ...headers, traceparent, tracestate }
  // A state that was forwarded from another header belongs to another parent.
  if (headers !== undefined && 'tracestate' in headers) {
    const { tracestate: _, ...others } = headers
    return { ...others, traceparent }
  }
  return headers === undefined ? { traceparent } : { ...headers, traceparent }
}

/** What the server of an attempt is to be told; undefined for calls that are not traced. */
export function stampOf({ record, headers }: Call): Stamp | undefined {
  if (!(record.span instanceof CallTrace) || headers?.traceparent === undefined) return undefined
  return { traceparent: headers.traceparent, tracestate: headers.tracestate }
}

/** The call with its stamp in `params._meta` as well, where servers of every transport find it. */
export function stamped(call: Call): Call {
  const stamp = stampOf(call)
  if (stamp === undefined) return call
  const message = withTraceparent(call.message, stamp.traceparent)
  if (stamp.tracestate === undefined) return derive(call, { message })
  return derive(call, { message: withMeta(message, 'params', 'tracestate', stamp.tracestate) })
}

/** As `withMeta`, and three times as fast for the most common message, one whose `params` have no `_meta`. */
function withTraceparent(message: Message, traceparent: string): Message {
  const { text, value } = message
  const { params } = value
  const isPlain = isObject(params) && !('_meta' in params)
  const span = isPlain ? locate(text, ['params']) : undefined
  if (!isPlain || span === undefined) return withMeta(message, 'params', 'traceparent', traceparent)
  const inside = span.start + 1
  const comma = isEmpty(params) ? '' : ','
  return {
    text: `${text.slice(0, inside)}"_meta":{"traceparent":"${traceparent}"}${comma}${text.slice(inside)}`,
    value: withEntry(value, 'params', withEntry(params, '_meta', { traceparent })),
  }
}

function isEmpty(object: object): boolean {
  for (const _ in object) return false
  return true
}
