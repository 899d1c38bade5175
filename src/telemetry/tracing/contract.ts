import type { Call, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import type { Peer } from '../conventions.ts'
import type { ConcealFor } from './attributes.ts'
import type { TracesConfig, Variables } from './settings.ts'

/** Tracing: makes spans of calls and of their attempts, and sends the spans to a collector. */
export interface Tracing {
  /** Begins an agent's request, which becomes a SERVER span. */
  begin(call: Call): void
  /**
   * Ends an agent's request, whose record must be complete. Makes its spans if its trace is recorded. After this,
   * `record.traceId` is set if and only if the trace is recorded. Called once for each `begin`; never throws.
   */
  end(call: Call, outcome: Outcome): void
  /** Begins an attempt, which becomes a CLIENT span. Returns the call for its server, with `traceparent`. */
  beginAttempt(call: Call): Call
  /** Ends an attempt; `call` is the result of `beginAttempt`. Never throws. */
  endAttempt(call: Call, outcome: Outcome): void
  /** Sends the waiting spans, for 3 seconds at most. Idempotent, never rejects. */
  close(): Promise<void>
}

export interface TracingParts {
  readonly clock: Clock
  readonly log: Log
  readonly config: TracesConfig
  /** The environment of the process. Must be the real one, because the OpenTelemetry SDK also reads it. */
  readonly env: Variables
  readonly counts: SpanCounts
  readonly version: string
  /** Returns true when a tool is in its server's catalog. Only then may the tool's name be in a span's name. */
  readonly isListed: (server: string, tool: string) => boolean
  /** Returns the transport, address and protocol version of a call's replica; undefined when unknown. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
  readonly conceal: ConcealFor
}

export type LossCause =
  /** More spans waited to be sent than allowed. */
  | 'queue_full'
  | 'export_failed'
  /** The gateway ended before the collector accepted the spans. */
  | 'shutdown'

export interface SpanCounts {
  exported(count: number): void
  dropped(count: number, cause: LossCause): void
}
