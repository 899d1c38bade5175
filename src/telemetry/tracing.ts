import type { Call, Outcome } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Log } from './log.ts'
import type { Peer } from './tracing/attempt-attributes.ts'
import type { SpanCounts } from './tracing/counts.ts'
import { readSettings, type TracesConfig, type Variables } from './tracing/settings.ts'

export type { Peer } from './tracing/attempt-attributes.ts'
export type { LossCause, SpanCounts } from './tracing/counts.ts'
export type { TracesConfig } from './tracing/settings.ts'

/** Spans of calls and of their attempts, sent to a collector. */
export interface Tracing {
  /** Whether an endpoint is configured. */
  readonly enabled: boolean
  /** A request of an agent begins: it is to become a SERVER span. */
  begin(call: Call): void
  /**
   * It is over, and its record complete: its spans are made of that, if they are kept. From then on `record.traceId`
   * is set if and only if the trace is recorded. Once for each `begin`; never throws.
   */
  end(call: Call, outcome: Outcome): void
  /** A try of it begins, which is to become a CLIENT span: returns it as its server is to get it, with `traceparent`. */
  beginAttempt(call: Call): Call
  /** The try that `beginAttempt` returned is over. Never throws. */
  endAttempt(call: Call, outcome: Outcome): void
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
  /** How the replica that a call went to is reached; undefined when that is not known. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
}

const nothing = (): void => undefined

/** No tracing, at no cost. */
export const untraced: Tracing = {
  enabled: false,
  begin: nothing,
  end: nothing,
  beginAttempt: (call) => call,
  endAttempt: nothing,
  close: () => Promise.resolve(),
}

/**
 * Tracing as environment and config say. Without an endpoint it is off, and the OpenTelemetry SDK is not even loaded.
 * Which variables count, and what wins: see `readSettings`. Settings that the exporter does not take are told in the
 * log, and tracing is off: no call is worth less for it.
 */
export async function createTracing(parts: TracingParts): Promise<Tracing> {
  const settings = readSettings(parts.env, parts.config)
  if (settings === undefined) return untraced
  for (const variable of settings.ignored)
    parts.log.warn({ variable, value: parts.env[variable] }, 'a variable holds something unknown: ignored')
  const { startTracing } = await import('./tracing/traced.ts')
  try {
    return await startTracing(settings, parts)
  } catch (error) {
    // Its message may hold what is wrong, such as a header with a token in it.
    const { name } = error as Error
    parts.log.error(
      { error: name, protocol: settings.protocol },
      'no spans: the exporter does not take its settings',
    )
    return untraced
  }
}
