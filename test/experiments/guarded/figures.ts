import type { Figures } from '../../../src/experiments/guarded/meter.ts'

/** Figures of calls with defaults, so that a test names only the fields of interest. */
export function figuresOf({ calls = 100, ...more }: Partial<Figures> = {}): Figures {
  const ms = calls === 0 ? undefined : (more.p95 ?? 10)
  const none = { failed: 0, waiting: 0, rejected: 0, attempts: calls, rejections: {} }
  return { calls, ...none, mean: ms, p50: ms, p90: ms, p95: ms, p99: ms, ...more }
}
