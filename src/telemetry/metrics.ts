import { Registry } from 'prom-client'
import type { MetricSpec } from '../mesh/metric-spec.ts'
import { policyMetrics } from '../policies/descriptions.ts'
import { version } from '../protocol/identity.ts'
import { calls } from './metrics/calls.ts'
import { FaultNames } from './metrics/fault-names.ts'
import { gateway } from './metrics/gateway.ts'
import { health, mesh } from './metrics/mesh.ts'
import { ArmsInForce } from './metrics/arms.ts'
import { Counter, type Gauge, Histogram, build, create, type MetricsOf } from './metrics/instruments.ts'
import { plans } from './metrics/plans.ts'
import { type KnownOfServers, Operations, operations } from './metrics/operations.ts'
import { ToolSeries } from './metrics/tool-series.ts'

const own = { ...calls, ...mesh, ...gateway, ...health, ...plans, ...operations } as const

/**
 * The specs of all metrics, including metrics of policies: name, meaning, labels, buckets, and the possible number of
 * series.
 */
export const table: readonly MetricSpec[] = [...Object.values(own), ...policyMetrics]

/** The metrics by key, and the state needed to update them. */
export interface Metrics extends MetricsOf<typeof own> {
  /** Returns the metric of a policy for its spec. */
  readonly ofPolicies: {
    counter(spec: MetricSpec<'counter'>): Counter<string>
    gauge(spec: MetricSpec<'gauge'>): Gauge<string>
  }
  readonly registry: Registry
  /**
   * Number of requests in progress by server. A plain map, because the number changes twice for each call but is read
   * only at a scrape.
   */
  readonly inFlight: Map<string, number>
  /** The series of each tool. All values of the label `tool` come from here. */
  readonly tools: ToolSeries
  /** The values of the label `fault`. */
  readonly faultNames: FaultNames
  /** Records the durations of OpenTelemetry's conventions; undefined when off. */
  readonly operations: Operations | undefined
  /** The arms in the config; only series of these arms are kept. */
  readonly arms: ArmsInForce
  /** Removes all series of a removed server. Calls of the server that end later create new series. */
  forgetServer(name: string): void
}

/**
 * Creates the metrics of one gateway; several gateways in a process count separately. `servers` has facts for the
 * durations of OpenTelemetry's conventions; without `servers`, these durations are not counted.
 */
export function createMetrics(servers?: KnownOfServers): Metrics {
  const registry = new Registry()
  const made = build(own, registry)
  const ofPolicies = new Map(policyMetrics.map((spec) => [spec, create(spec, registry)]))
  const all = [...Object.values(made), ...ofPolicies.values()]
  made.buildInfo.set({ version, node: process.version }, 1)
  const perTool = [...ofPolicies.values()].filter((metric) => metric instanceof Counter && metric.has('tool'))
  const operations = servers && new Operations(made, servers)
  const tools = new ToolSeries(made, perTool as Counter<string>[], operations)
  const inFlight = new Map<string, number>()
  const perArm = all.filter(
    (metric) => (metric instanceof Counter || metric instanceof Histogram) && metric.has('arm'),
  )
  const arms = new ArmsInForce((isGone) => {
    tools.forgetArms(isGone)
    for (const metric of perArm) metric.forget(({ arm }) => arm !== undefined && isGone(arm))
  })
  return {
    ...made,
    ofPolicies: {
      counter: (spec) => ofPolicies.get(spec) as Counter<string>,
      gauge: (spec) => ofPolicies.get(spec) as Gauge<string>,
    },
    registry,
    inFlight,
    tools,
    faultNames: new FaultNames(),
    operations,
    arms,
    forgetServer(server) {
      inFlight.delete(server)
      tools.forget(server)
      operations?.forget(server)
      for (const metric of all)
        if (metric instanceof Counter && metric.has('server'))
          metric.forget((labels) => labels.server === server)
    },
  }
}
