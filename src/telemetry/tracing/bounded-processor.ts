import type { tracing } from '@opentelemetry/sdk-node'
import type { SpanCounts } from './counts.ts'

/**
 * Lets only so many spans wait, and counts the others. The SDK's own processor drops silently, and does not count those
 * that are being sent: with a slow collector they would come on top.
 */
export class BoundedProcessor implements tracing.SpanProcessor {
  readonly #inner: tracing.SpanProcessor
  readonly #most: number
  readonly #counts: SpanCounts
  #waiting = 0

  constructor(inner: tracing.SpanProcessor, most: number, counts: SpanCounts) {
    this.#inner = inner
    this.#most = most
    this.#counts = counts
  }

  /** Spans that the collector has not taken yet. */
  get waiting(): number {
    return this.#waiting
  }

  /** Spans no longer wait: they were sent, or lost on the way. */
  settled(count: number): void {
    this.#waiting -= count
  }

  onStart(): void {}

  onEnd(span: tracing.ReadableSpan): void {
    if (this.#waiting >= this.#most) return this.#counts.dropped(1, 'queue_full')
    this.#waiting++
    this.#inner.onEnd(span)
  }

  forceFlush(): Promise<void> {
    return this.#inner.forceFlush()
  }

  shutdown(): Promise<void> {
    return this.#inner.shutdown()
  }
}
