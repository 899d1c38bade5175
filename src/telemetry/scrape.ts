import { matcher } from '../mesh/match.ts'
import { DEFAULT_SET, type Place } from '../mesh/settings.ts'
import { states } from '../policies/descriptions.ts'
import type { Metrics } from './metrics.ts'
import { OTHER } from './metrics/label-value.ts'
import { collectDefaultMetrics, type Gauge, Registry } from 'prom-client'
import { systemClock } from '../mesh/clock.ts'

/**
 * Sets the gauges of policies to their current state, at each scrape. Skips policy sets that are not used by an arm.
 */
export function collectStates(
  metrics: Pick<Metrics, 'ofPolicies' | 'tools' | 'arms'>,
  statesOf: (kind: string) => readonly (readonly [Place, object])[],
): void {
  for (const { gauge } of states) if (gauge !== undefined) metrics.ofPolicies.gauge(gauge.metric).reset()
  for (const { kind, gauge } of states) {
    if (gauge === undefined) continue
    const { metric, always = [], samples } = gauge
    const read = metrics.ofPolicies.gauge(metric)
    const names = new Set(metric.labels)
    for (const labels of always) read.inc(labels, 0)
    for (const [{ server, tool, set }, state] of statesOf(kind)) {
      const isArm = set !== DEFAULT_SET
      if (isArm && !(names.has('arm') && metrics.arms.has(set))) continue
      const owner: Record<string, string> = {}
      if (names.has('server')) owner.server = server
      if (names.has('tool'))
        owner.tool = tool === undefined ? OTHER : metrics.tools.of(server, tool, listed).labels.tool
      if (names.has('arm')) owner.arm = isArm ? set : ''
      for (const { labels, value } of samples(state)) read.inc({ ...owner, ...labels }, value)
    }
  }
}

/** Sets the gauge of requests in progress, by server. */
export function collectInFlight({ underWay, inFlight }: Pick<Metrics, 'underWay' | 'inFlight'>): void {
  underWay.reset()
  for (const [server, count] of inFlight) underWay.set({ server }, count)
}

/** Accepts any tool without a lookup, because only tools in a catalog have separate state. */
const listed = () => true

/** The parts of the config's experiments that telemetry reads, each with its current or else its last run. */
export type ExperimentRuns = readonly {
  readonly experiment: {
    readonly name: string
    readonly arms: Readonly<Record<string, unknown>>
    readonly match?: { readonly server?: string | undefined; readonly tool?: string | undefined } | undefined
  }
  readonly run: { readonly samples: Samples; readonly end: object | undefined } | undefined
}[]

/**
 * Creates the series of running arms at 0, so that an arm without a failure or without a call shows 0. Creates no
 * series for experiments that do not run. An arm gets series only for tools that have been called.
 */
export function beginArms({ arms, tools }: Pick<Metrics, 'arms' | 'tools'>, runs: ExperimentRuns): void {
  const ofConfig = new Map(
    runs.flatMap((listed) =>
      Object.keys(listed.experiment.arms).map((arm) => [`${listed.experiment.name}/${arm}`, listed]),
    ),
  )
  for (const arm of arms.names) {
    // Always handles arms of a guarded run: they are not in the config, and exist only during the run.
    const listed = ofConfig.get(arm)
    if (listed !== undefined && (listed.run === undefined || listed.run.end !== undefined)) continue
    const { server, tool } = listed?.experiment.match ?? {}
    const takes = matcher({ server, tool })
    tools.begin(arm, (of, called) => takes(of, 'tools/call', called))
  }
}

interface Samples {
  /** Number of calls in arms whose data is stored. */
  readonly assigned: number
  readonly fallback: number
  readonly dropped: number
  readonly out: { readonly not_drawn: number; readonly excluded: number }
  unitsOf(arm: string): number
}

/** Sets the metrics of running experiments and of the calls in their arms, at each scrape. */
export function collectExperiments(
  metrics: Pick<Metrics, 'experimentRunning' | 'experimentUnits' | 'experimentCalls'>,
  runs: ExperimentRuns,
): void {
  const { experimentRunning, experimentUnits, experimentCalls } = metrics
  const names = new Set(runs.map(({ experiment }) => experiment.name))
  experimentRunning.reset()
  experimentUnits.reset()
  experimentCalls.forget(({ experiment = '' }) => !names.has(experiment))
  for (const { experiment, run } of runs) {
    const { name, arms } = experiment
    experimentRunning.set({ experiment: name }, run !== undefined && run.end === undefined ? 1 : 0)
    for (const arm of Object.keys(arms))
      experimentUnits.set({ arm: `${name}/${arm}` }, run?.samples.unitsOf(arm) ?? 0)
    for (const [assigned, count] of Object.entries(callsOf(run?.samples)))
      experimentCalls.series({ experiment: name, assigned }).value = count
  }
}

function callsOf(samples: Samples | undefined): Readonly<Record<string, number>> {
  const { assigned = 0, fallback = 0, dropped = 0, out } = samples ?? {}
  const { not_drawn = 0, excluded = 0 } = out ?? {}
  return { unit: assigned - fallback, fallback, not_drawn, excluded, dropped }
}

let shared: Registry | undefined

/**
 * Returns the registry of process metrics: CPU, memory, event loop lag and garbage collection, with prom-client's usual
 * names. All gateways of a process share the registry; measuring begins at the first call.
 */
export function processRegistry(): Registry {
  if (shared === undefined) {
    shared = new Registry()
    collectDefaultMetrics({ register: shared })
    keepLag(shared)
    // Removes gauges with names reserved for counters; they are only sums of other metrics here.
    for (const { name, type } of shared.getMetricsAsArray())
      if (name.endsWith('_total') && String(type) === 'gauge') shared.removeSingleMetric(name)
  }
  return shared
}

/**
 * Shortest time over which the event loop lag is measured, in milliseconds. Scrapes within this time get the same
 * values.
 */
const LAG_MS = 1_000

/**
 * Limits how often the event loop lag is collected. Each collection restarts prom-client's histogram, so a second
 * collection right after the first would have no data.
 */
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
