import type { FastifyInstance } from 'fastify'
import { metStates } from '../control/orders.ts'
import type { Guards } from '../downstream/limits/limits.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import { during } from '../mesh/work.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Incidents } from '../registry/health/incidents.ts'
import { listKinds } from '../protocol/lists.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { Exposition, formatFor } from '../telemetry/metrics/exposition.ts'
import { collectActiveRun, collectPlans, type KnownPlans } from '../telemetry/collect-plans.ts'
import { contentTypes } from '../telemetry/metrics/format.ts'
import {
  processRegistry,
  beginArms,
  collectExperiments,
  collectInFlight,
  collectStates,
  type ExperimentRuns,
} from '../telemetry/scrape.ts'

export interface MetricsParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly metrics: Metrics
  readonly sessions: { readonly size: number }
  /** The quotas of agents, and data kept for agents. */
  readonly guards: Pick<Guards, 'unread' | 'replay' | 'quotas'>
  readonly bodies: { readonly count: number; readonly bytes: number }
  /** The parts of replies kept until the replies are complete. */
  readonly replies: { readonly bytes: number }
  readonly intents: { readonly size: number }
  readonly experiments: { runs(): ExperimentRuns }
  readonly state: StateStore
  readonly chaos: { readonly engine: { readonly live: boolean } }
  readonly incidents: Pick<Incidents, 'openOf'>
  /** `running`: the plan of the guarded run under way; undefined for none. */
  readonly guarded: { readonly running: string | undefined }
  readonly plans: KnownPlans
}

/** A header that Prometheus and compatible scrapers send with each scrape. */
const OF_PROMETHEUS = 'x-prometheus-scrape-timeout-seconds'

/** Registers `/metrics` for Prometheus, in the format requested by the scraper. */
export function registerMetrics(app: FastifyInstance, parts: MetricsParts): void {
  const { live, clock, metrics } = parts
  const exposition = new Exposition({
    clock,
    maxAgeMs: () => live.current.config.telemetry.metrics.maxAge,
    registries: [metrics.registry, processRegistry()],
    prepare: () => during('metrics', () => collect(parts)),
    // Removes series only after the writing, so that the last counts of removed servers are exported once.
    written: () => {
      forgetGone(metrics, live.current)
      metrics.arms.told()
    },
  })
  app.get('/metrics', async ({ headers }, reply) => {
    const format = formatFor(headers.accept)
    const text = await exposition.write(format, OF_PROMETHEUS in headers)
    return reply.type(contentTypes[format]).header('vary', 'accept').send(text)
  })
}

/** Sets the gauges to the current states, at each scrape. */
function collect(parts: MetricsParts): void {
  const { live, clock, metrics, sessions, guards, bodies, replies, intents, experiments, chaos } = parts
  metrics.sessions.set(sessions.size)
  metrics.unreadBytes.set(guards.unread.bytes)
  metrics.replayBytes.set(guards.replay.bytes)
  metrics.initializeParamsBytes.set(guards.quotas.initializeParams.total)
  metrics.answerBytes.set(guards.quotas.answers.total)
  metrics.replyBytes.set(replies.bytes)
  metrics.bodies.set(bodies.count)
  metrics.bodyBytes.set(bodies.bytes)
  metrics.intentsOpen.set(intents.size)
  metrics.chaosArmed.set(chaos.engine.live ? 1 : 0)
  collectInFlight(metrics)
  collectStates(metrics, (kind) => metStates(kind, parts))
  collectExperiments(metrics, experiments.runs())
  beginArms(metrics, experiments.runs())
  collectHealth(parts)
  collectActiveRun(metrics, parts.guarded.running)
  collectPlans(metrics, parts.plans, clock.wall())
  metrics.serverUp.reset()
  metrics.serverTools.reset()
  metrics.serverUnlisted.reset()
  metrics.serverProcesses.reset()
  for (const server of live.current.servers.values()) {
    metrics.serverUp.set({ server: server.name }, server.state === 'up' ? 1 : 0)
    metrics.serverTools.set({ server: server.name }, server.entries('tools').length)
    for (const list of listKinds) {
      const count = server.unlisted.filter(({ kind }) => kind === list).length
      metrics.serverUnlisted.set({ server: server.name, list }, count)
    }
    if (server.processes !== undefined) metrics.serverProcesses.set({ server: server.name }, server.processes)
  }
}

function collectHealth({ live, metrics, incidents }: MetricsParts): void {
  metrics.incidentsOpen.reset()
  metrics.probeLatency.reset()
  metrics.probeBaseline.reset()
  for (const { name: server, health, config, state } of live.current.servers.values()) {
    if (config.health === false) continue
    metrics.incidentsOpen.set({ server }, incidents.openOf(server) === undefined ? 0 : 1)
    for (const { step, latestMs, baselineMs } of health.paces) {
      // Sets no latency while a server is down, because the latest value would be outdated.
      if (state === 'up') metrics.probeLatency.set({ server, step }, latestMs / 1000)
      if (baselineMs !== undefined) metrics.probeBaseline.set({ server, step }, baselineMs / 1000)
    }
  }
}

/** Removes the series of servers that were removed, once their last call has ended. */
function forgetGone(metrics: Metrics, { servers }: GatewayGeneration): void {
  const { inFlight, tools } = metrics
  for (const server of new Set([...inFlight.keys(), ...tools.servers]))
    if (!servers.has(server) && (inFlight.get(server) ?? 0) === 0) metrics.forgetServer(server)
}
