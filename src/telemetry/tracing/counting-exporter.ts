import { core, type tracing } from '@opentelemetry/sdk-node'
import type { Clock, Millis } from '../../mesh/clock.ts'
import type { Log } from '../log.ts'
import type { SpanCounts } from './counts.ts'
import { clipped } from './text.ts'

/** How often failures are told at most, in milliseconds: a collector that is down fails every few seconds. */
const SILENCE_MS = 60_000

export interface CountingParts {
  readonly clock: Clock
  readonly log: Log
  readonly counts: SpanCounts
  /** Told how many spans no longer wait. */
  readonly settled: (count: number) => void
}

/** Counts what another exporter sends and loses, and says so now and then. */
export class CountingExporter implements tracing.SpanExporter {
  readonly #inner: tracing.SpanExporter
  readonly #parts: CountingParts
  #lost = 0
  #quietUntil: Millis = -Infinity

  constructor(inner: tracing.SpanExporter, parts: CountingParts) {
    this.#inner = inner
    this.#parts = parts
  }

  export(spans: tracing.ReadableSpan[], done: (result: core.ExportResult) => void): void {
    const { length } = spans
    const ended = (result: core.ExportResult) => {
      this.#parts.settled(length)
      if (result.code === core.ExportResultCode.SUCCESS) this.#parts.counts.exported(length)
      else this.#failed(length, result.error)
      done(result)
    }
    try {
      this.#inner.export(spans, ended)
    } catch (error) {
      ended({ code: core.ExportResultCode.FAILED, error: error as Error })
    }
  }

  forceFlush(): Promise<void> {
    return this.#inner.forceFlush?.() ?? Promise.resolve()
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown()
  }

  #failed(count: number, error: Error | undefined): void {
    const { clock, log, counts } = this.#parts
    counts.dropped(count, 'export_failed')
    this.#lost += count
    const now = clock.now()
    if (now < this.#quietUntil) return
    this.#quietUntil = now + SILENCE_MS
    const { message, code } = (error ?? {}) as { message?: string; code?: string | number }
    // No more of it: the body of a reply, which is in there as well, may repeat the headers that we have sent.
    const line = { error: clipped(message ?? ''), code, spans: this.#lost }
    log.warn(line, 'spans were lost: the collector did not take them')
    this.#lost = 0
  }
}
