/** The span of somebody else that a call belongs under. */
export interface Parent {
  /** 32 hexadecimal digits. */
  readonly traceId: string
  /** 16 hexadecimal digits. */
  readonly spanId: string
  /** Whether its trace was chosen to be recorded. */
  readonly sampled: boolean
  /** What tracing vendors have added, to be passed on as it is. */
  readonly state: string | undefined
}

/** https://www.w3.org/TR/trace-context/#traceparent-header; later versions may add fields, and `ff` is none. */
const TRACEPARENT =
  /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/

/** Longest that is looked at: no known version comes near. */
const LONGEST = 256

/** It becomes a header again: nothing may be in it that ends one. */
const TRACESTATE = /^[\x20-\x7e]{1,512}$/

/** Headers of W3C Trace Context and Baggage, lower case. */
const OF_ONE_REQUEST: ReadonlySet<string> = new Set(['baggage', 'traceparent', 'tracestate'])

/**
 * Whether a header describes one request and no caller: the header changes with each request of an agent, and is no credential.
 * `header`: its name at the server, lower case.
 */
export const isOfOneRequest = (header: string): boolean => OF_ONE_REQUEST.has(header)

/** Reads the pair of fields in which W3C Trace Context travels; undefined when the first is missing or malformed. */
export function readParent(traceparent: unknown, tracestate: unknown): Parent | undefined {
  if (typeof traceparent !== 'string' || traceparent.length > LONGEST) return undefined
  const [, version, traceId, spanId, flags, more] = TRACEPARENT.exec(traceparent) ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  if (version === '00' && more !== undefined) return undefined
  const state = typeof tracestate === 'string' && TRACESTATE.test(tracestate) ? tracestate : undefined
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1, state }
}
