import type { Call, Outcome } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import type { Peer } from '../conventions.ts'
import type { ConcealFor } from './attributes.ts'
import type { TracesConfig, Variables } from './settings.ts'

/** Spans of calls and of their attempts, sent to a collector. */
export interface Tracing {
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
  readonly conceal: ConcealFor
}

/** Why spans were lost. */
export type LossCause =
  /** More of them waited than may. */
  | 'queue_full'
  /** The collector did not take them. */
  | 'export_failed'
  /** The gateway ended before the collector had taken them. */
  | 'shutdown'

/** Told what became of spans, by how many. */
export interface SpanCounts {
  exported(count: number): void
  dropped(count: number, cause: LossCause): void
}
