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
  /** Data that is kept, or on its way, on behalf of agents. */
  readonly guards: Pick<Guards, 'unread' | 'replay' | 'quotas'>
  readonly bodies: { readonly count: number; readonly bytes: number }
  /** The parts of replies that are kept until the replies are complete. */
  readonly replies: { readonly bytes: number }
  readonly intents: { readonly size: number }
  readonly experiments: { runs(): ExperimentRuns }
  readonly state: StateStore
  readonly chaos: { readonly engine: { readonly live: boolean } }
  readonly incidents: Pick<Incidents, 'openOf'>
}

/** Prometheus and compatible scrapers send this header with each scrape. */
const OF_PROMETHEUS = 'x-prometheus-scrape-timeout-seconds'

/** `/metrics` for Prometheus, in the format that it asks for. */
export function registerMetrics(app: FastifyInstance, parts: MetricsParts): void {
  const { live, clock, metrics } = parts
  const exposition = new Exposition({
    clock,
    maxAgeMs: () => live.current.config.telemetry.metrics.maxAge,
    registries: [metrics.registry, processRegistry()],
    prepare: () => during('metrics', () => collect(parts)),
    // Only now, so that the last of their counts has been told.
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

/** Reads the values that are states rather than events, when they are asked for. */
function collect(parts: MetricsParts): void {
  const { live, metrics, sessions, guards, bodies, replies, intents, experiments, chaos } = parts
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
      // While it is down there is no probe to time: how long the last one took says nothing of now.
      if (state === 'up') metrics.probeLatency.set({ server, step }, latestMs / 1000)
      if (baselineMs !== undefined) metrics.probeBaseline.set({ server, step }, baselineMs / 1000)
    }
  }
}

/** Series of servers that were deregistered go, once the last of their calls is over. */
function forgetGone(metrics: Metrics, { servers }: GatewayGeneration): void {
  const { inFlight, tools } = metrics
  for (const server of new Set([...inFlight.keys(), ...tools.servers]))
    if (!servers.has(server) && (inFlight.get(server) ?? 0) === 0) metrics.forgetServer(server)
}
