import { collectDefaultMetrics, Registry } from 'prom-client'

let shared: Registry | undefined

/**
 * What Node and the machine say of this process: CPU, memory, event loop lag, garbage collection, under prom-client's
 * usual names. One for all gateways of a process; measuring begins when it is first asked for.
 */
export function processRegistry(): Registry {
  if (shared === undefined) {
    shared = new Registry()
    collectDefaultMetrics({ register: shared })
    // Gauges that are called as only counters may be: sums of others, which stay.
    for (const { name, type } of shared.getMetricsAsArray())
      if (name.endsWith('_total') && String(type) === 'gauge') shared.removeSingleMetric(name)
  }
  return shared
}
