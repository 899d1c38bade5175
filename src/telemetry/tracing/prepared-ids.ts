import type { tracing } from '@opentelemetry/sdk-node'

/**
 * Gives spans the ids that servers have heard of already. The SDK asks for them while a span is being created, which is
 * synchronous: what was prepared right before is what it gets.
 */
export class PreparedIds implements tracing.IdGenerator {
  #traceId = ''
  #spanId = ''

  prepare(traceId: string, spanId: string): void {
    this.#traceId = traceId
    this.#spanId = spanId
  }

  readonly generateTraceId = (): string => this.#traceId
  readonly generateSpanId = (): string => this.#spanId
}
