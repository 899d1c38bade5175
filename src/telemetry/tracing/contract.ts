import type { Call, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import type { Peer } from '../conventions.ts'
import type { ConcealFor } from './attributes.ts'
import type { TracesConfig, Variables } from './settings.ts'

/** Spans of calls and of their attempts, sent to a collector. */
export interface Tracing {
  /** Begins a request of an agent, a future SERVER span. */
  begin(call: Call): void
  /**
   * Ends a request with a complete record; makes its spans if they are kept. From then on `record.traceId` is set if
   * and only if the trace is recorded. Called once for each `begin`; never throws.
   */
  end(call: Call, outcome: Outcome): void
  /** Begins a try, a future CLIENT span: returns the call for its server, with `traceparent`. */
  beginAttempt(call: Call): Call
  /** Ends the try returned by `beginAttempt`. Never throws. */
  endAttempt(call: Call, outcome: Outcome): void
  /** Sends the waiting spans, for 3 seconds at most. Idempotent, never rejects. */
  close(): Promise<void>
}

export interface TracingParts {
  readonly clock: Clock
  readonly log: Log
  readonly config: TracesConfig
  /** The process's own environment: the OpenTelemetry SDK also reads the environment itself. */
  readonly env: Variables
  readonly counts: SpanCounts
  readonly version: string
  /** Whether a tool is in its server's catalog: only then may its name appear in a span's name. */
  readonly isListed: (server: string, tool: string) => boolean
  /** Returns how the gateway reaches the replica of a call; undefined when unknown. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
  readonly conceal: ConcealFor
}

export type LossCause =
  /** More spans waited than allowed. */
  | 'queue_full'
  | 'export_failed'
  /** The gateway ended before the collector accepted the spans. */
  | 'shutdown'

export interface SpanCounts {
  exported(count: number): void
  dropped(count: number, cause: LossCause): void
}
