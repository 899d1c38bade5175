import { Registry } from 'prom-client'
import { version } from '../protocol/identity.ts'
import { calls } from './metrics/calls.ts'
import { gateway } from './metrics/gateway.ts'
import { Tally } from './metrics/instruments.ts'
import { mesh } from './metrics/mesh.ts'
import { build, type MetricsOf } from './metrics/spec.ts'
import { ToolSeries } from './metrics/tool-series.ts'

/** Every metric there is: name, meaning, labels, buckets, and how many series there can be. */
export const table = { ...calls, ...mesh, ...gateway } as const

/** The metrics of the table by key, and what it takes to keep them. */
export interface Metrics extends MetricsOf<typeof table> {
  readonly registry: Registry
  /** Requests under way by server: counted here, for it changes twice a call, and read at a scrape. */
  readonly inFlight: Map<string, number>
  /** The series of each tool: the only source of values for the label `tool`. */
  readonly tools: ToolSeries
  /** Removes all series of a server that is there no more; calls of it that still end make new ones. */
  forgetServer(name: string): void
}

/** Makes the metrics of one gateway; several in one process count each for themselves. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  const made = build(table, registry)
  made.buildInfo.set({ version, node: process.version }, 1)
  const tools = new ToolSeries(made)
  const inFlight = new Map<string, number>()
  return {
    ...made,
    registry,
    inFlight,
    tools,
    forgetServer(server) {
      inFlight.delete(server)
      tools.forget(server)
      for (const metric of Object.values(made))
        if (metric instanceof Tally && metric.has('server'))
          metric.forget((labels) => labels.server === server)
    },
  }
}
