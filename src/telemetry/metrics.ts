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
import { type KnownOfServers, Operations, operations } from './metrics/operations.ts'
import { ToolSeries } from './metrics/tool-series.ts'

const own = { ...calls, ...mesh, ...gateway, ...health, ...operations } as const

/** Every metric there is, those of policies included: name, meaning, labels, buckets, and how many series there can be. */
export const table: readonly MetricSpec[] = [...Object.values(own), ...policyMetrics]

/** The metrics by key, and what it takes to keep them. */
export interface Metrics extends MetricsOf<typeof own> {
  /** The metrics of policies, by the specs that policies give. */
  readonly ofPolicies: {
    counter(spec: MetricSpec<'counter'>): Counter<string>
    gauge(spec: MetricSpec<'gauge'>): Gauge<string>
  }
  readonly registry: Registry
  /** Requests under way by server: counted here, for it changes twice a call, and read at a scrape. */
  readonly inFlight: Map<string, number>
  /** The series of each tool: the only source of values for the label `tool`. */
  readonly tools: ToolSeries
  /** The only source of values for the label `fault`. */
  readonly faultNames: FaultNames
  /** Feeds the durations of OpenTelemetry's conventions; undefined when these are off. */
  readonly operations: Operations | undefined
  /** The arms that the config has, and whose series are kept. */
  readonly arms: ArmsInForce
  /** Removes all series of a server that is there no more; calls of it that still end make new ones. */
  forgetServer(name: string): void
}

/**
 * Makes the metrics of one gateway; several in one process count each for themselves. `servers`: what the durations of
 * OpenTelemetry's conventions say of servers; these are not counted unless given.
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
