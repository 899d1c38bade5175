import { collectDefaultMetrics, type Gauge, Registry } from 'prom-client'
import { systemClock } from '../../mesh/clock.ts'

let shared: Registry | undefined

/**
 * What Node and the machine say of this process: CPU, memory, event loop lag, garbage collection, under prom-client's
 * usual names. One for all gateways of a process; measuring begins when it is first asked for.
 */
export function processRegistry(): Registry {
  if (shared === undefined) {
    shared = new Registry()
    collectDefaultMetrics({ register: shared })
    keepLag(shared)
    // Gauges that are called as only counters may be: sums of others, which stay.
    for (const { name, type } of shared.getMetricsAsArray())
      if (name.endsWith('_total') && String(type) === 'gauge') shared.removeSingleMetric(name)
  }
  return shared
}

/** For so long the lag of the event loop is measured before it is told, and stays as it was told, in milliseconds. */
const LAG_MS = 1_000

/** Each collection begins its histogram anew: one right after another, as by two scrapers or in two formats, would have nothing to tell, and would tell that as numbers. */
function keepLag(registry: Registry): void {
  const lag = registry.getSingleMetric('nodejs_eventloop_lag_seconds') as Gauge & { collect?: () => unknown }
  const { collect } = lag
  let collectedAt = systemClock.now()
  lag.collect = () => {
    const now = systemClock.now()
    if (now - collectedAt < LAG_MS) return undefined
    collectedAt = now
    return collect?.call(lag)
  }
}
