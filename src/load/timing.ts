import { never, type Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'

/** A timeout of `ms` milliseconds; `stop` aborts earlier. */
export interface Within {
  readonly clock: Pick<Clock, 'after'>
  readonly ms: Millis
  readonly stop?: Signal
}

/** Runs a task with an `AbortSignal`, which aborts after the timeout or with `stop`. */
export async function patiently<Result>(
  { clock, ms, stop = never }: Within,
  task: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const patience = new AbortController()
  const giveUp = () => patience.abort()
  const cancel = clock.after(ms, giveUp)
  stop.addEventListener('abort', giveUp)
  if (stop.aborted) giveUp()
  try {
    return await task(patience.signal)
  } finally {
    cancel()
    stop.removeEventListener('abort', giveUp)
  }
}

export interface Pace {
  readonly clock: Clock
  /** Tasks started per second. */
  readonly rate: number
  /** Maximum number of tasks under way at a time; further tasks wait. */
  readonly concurrent: number
  /** Maximum number of tasks in all; no limit by default. */
  readonly most?: number
}

/**
 * Begins tasks at a steady rate until `stop` aborts; resolves when all tasks are over. `begin` gets task numbers from
 * 0, and never rejects.
 */
export async function steadily(
  { clock, rate, concurrent, most = Infinity }: Pace,
  stop: Signal,
  begin: (n: number) => Promise<void>,
): Promise<void> {
  const underWay = new Set<Promise<void>>()
  const over = new Promise<void>((resolve) => stop.addEventListener('abort', resolve))
  const startedAt = clock.now()
  for (let n = 0; n < most && !stop.aborted; n++) {
    const dueMs = startedAt + (n * 1_000) / rate - clock.now()
    if (dueMs > 0) await clock.sleep(dueMs, stop).catch(() => undefined)
    if (underWay.size >= concurrent) await Promise.race([...underWay, over])
    if (stop.aborted) break
    const task = begin(n).finally(() => underWay.delete(task))
    underWay.add(task)
  }
  await Promise.all(underWay)
}
