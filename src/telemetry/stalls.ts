import type { Clock, Millis } from '../mesh/clock.ts'
import { watchWork, works, type Work } from '../mesh/work.ts'
import type { Log } from './log.ts'
import { LogThrottle } from './log-throttle.ts'
import type { Metrics } from './metrics.ts'

/** Time between two checks, in milliseconds. */
const LOOK_MS: Millis = 100

/** Smallest delay of a check that counts as a stall, in milliseconds. */
const STALL_MS: Millis = 100

/** Shortest work that may be named as the reason of a stall, in milliseconds. */
const LEAST_MS: Millis = 1

const LOGGED_PER_SECOND = 1

/**
 * Watches for stalls of the event loop: a late timer means a stall. Names a kind of work as the reason if this work
 * took at least half of the stall. Returns a function that ends the watch.
 */
export function watchStalls({
  clock,
  log,
  metrics,
}: {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Pick<Metrics, 'stalls' | 'stalledSeconds'>
}): () => void {
  const throttle = new LogThrottle(clock, LOGGED_PER_SECOND)
  const spent = new Map<Work, Millis>()
  // Creates the series at 0, because `rate` of Prometheus misses the first increase of a new series.
  for (const work of works) {
    metrics.stalls.series({ during: work })
    metrics.stalledSeconds.series({ during: work })
  }

  const unwatch = watchWork({
    now: () => clock.now(),
    worked(work, ms) {
      if (ms >= LEAST_MS) spent.set(work, (spent.get(work) ?? 0) + ms)
    },
  })

  function look(due: Millis): void {
    const lateMs = clock.now() - due
    if (lateMs >= STALL_MS) stalled(lateMs)
    spent.clear()
    cancel = next()
  }

  function stalled(ms: Millis): void {
    const during = causeOf(spent, ms)
    metrics.stalls.inc({ during })
    metrics.stalledSeconds.inc({ during }, ms / 1_000)
    throttle.admit((dropped) =>
      log.warn({ ms: Math.round(ms), during, ...(dropped > 0 && { dropped }) }, 'the event loop stood still'),
    )
  }

  const next = () => {
    const due = clock.now() + LOOK_MS
    return clock.after(LOOK_MS, () => look(due))
  }
  let cancel = next()
  return () => {
    cancel()
    unwatch()
  }
}

function causeOf(spent: ReadonlyMap<Work, Millis>, stallMs: Millis): Work {
  let cause: Work = 'other'
  let most = stallMs / 2
  for (const [work, ms] of spent) if (ms >= most) [cause, most] = [work, ms]
  return cause
}
