import type { Call, InboundHeaders } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { DEADLINE_KEY, metaOf } from '../../protocol/meta.ts'

const MILLISECONDS = /^\d{1,15}(?:\.\d{1,9})?$/

/** As the gRPC wire protocol defines it: at most eight digits and a unit. */
const GRPC_TIMEOUT = /^(\d{1,8})([HMSmun])$/

const GRPC_UNITS_MS: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
}

/**
 * How long the agent is going to wait, in milliseconds from the call's arrival: the smallest of what it says in
 * its headers and in `_meta`. What is malformed or not positive is as good as not said; undefined when nothing is.
 */
export function askedLimitMs({ inbound, message }: Pick<Call, 'inbound' | 'message'>): Millis | undefined {
  let ms = headerMs(inbound, 'x-breakwater-deadline-ms')
  ms = Math.min(ms, headerMs(inbound, 'x-envoy-expected-rq-timeout-ms'))
  ms = Math.min(ms, grpcTimeoutMs(inbound['grpc-timeout']))
  const said = metaOf(message.value, 'params', DEADLINE_KEY)
  if (typeof said === 'number' && said > 0) ms = Math.min(ms, said)
  return ms === Infinity ? undefined : ms
}

function headerMs(headers: InboundHeaders, name: string): Millis {
  const value = headers[name]
  if (typeof value !== 'string' || !MILLISECONDS.test(value)) return Infinity
  return positive(Number(value))
}

function grpcTimeoutMs(value: string | string[] | undefined): Millis {
  const parts = typeof value === 'string' ? GRPC_TIMEOUT.exec(value) : null
  if (parts === null) return Infinity
  return positive(Number(parts[1]) * (GRPC_UNITS_MS[parts[2] as string] as number))
}

function positive(ms: Millis): Millis {
  return ms > 0 ? ms : Infinity
}
