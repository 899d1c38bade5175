import type { Call, Layer } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Log } from './log.ts'
import type { Peer } from './tracing/attempt-attributes.ts'
import type { SpanCounts } from './tracing/counts.ts'
import { readSettings, type TracesConfig, type Variables } from './tracing/settings.ts'

export type { Peer } from './tracing/attempt-attributes.ts'
export { keptSpanOf } from './tracing/call-trace.ts'
export type { LossCause, SpanCounts } from './tracing/counts.ts'
export type { TracesConfig } from './tracing/settings.ts'

/** Spans of calls and of their attempts, sent to a collector. */
export interface Tracing {
  /** Whether an endpoint is configured. */
  readonly enabled: boolean
  /**
   * Makes a SERVER span of each request of an agent. To stand right below what else observes whole calls: when
   * that sees an outcome, `record.traceId` is set if and only if the trace is recorded.
   */
  readonly serverLayer: Layer
  /** Makes a CLIENT span of each attempt, and gives it the header `traceparent`. */
  readonly attemptLayer: Layer
  /** The call with `traceparent` in `params._meta`; the same call when it is not traced. To be sent right away. */
  stamp(call: Call): Call
  /** Sends what waits, for 3 seconds at most. Idempotent, never rejects. */
  close(): Promise<void>
}

export interface TracingParts {
  readonly clock: Clock
  readonly log: Log
  readonly config: TracesConfig
  /** The process's own environment: the OpenTelemetry SDK reads it by itself as well. */
  readonly env: Variables
  readonly counts: SpanCounts
  /** Our own version. */
  readonly version: string
  /** Whether a tool is in its server's catalog: only then may it name a span. */
  readonly isListed: (server: string, tool: string) => boolean
  /** How a replica is reached; undefined when that is not known. */
  readonly peerOf: (server: string, replica: number | undefined) => Peer | undefined
}

const pass: Layer = (next) => next

/** No tracing, at no cost. */
export const untraced: Tracing = {
  enabled: false,
  serverLayer: pass,
  attemptLayer: pass,
  stamp: (call) => call,
  close: () => Promise.resolve(),
}

/**
 * Tracing as environment and config say. Without an endpoint it is off, and the OpenTelemetry SDK is not even loaded.
 * Which variables count, and what wins: see `readSettings`.
 */
export async function createTracing(parts: TracingParts): Promise<Tracing> {
  const settings = readSettings(parts.env, parts.config)
  if (settings === undefined) return untraced
  for (const variable of settings.ignored)
    parts.log.warn({ variable, value: parts.env[variable] }, 'a variable holds something unknown: ignored')
  const { startTracing } = await import('./tracing/traced.ts')
  return startTracing(settings, parts)
}
