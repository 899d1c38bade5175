import type { FastifyInstance } from 'fastify'
import type { Live } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { collectStates } from '../telemetry/mesh-states.ts'
import type { Metrics } from '../telemetry/metrics.ts'

/** `/metrics` for Prometheus. What is a state rather than an event is read when it is asked for. */
export function registerMetrics(
  app: FastifyInstance,
  {
    live,
    metrics,
    sessions,
    state,
    chaos,
  }: {
    live: Live<GatewayGeneration>
    metrics: Metrics
    sessions: { readonly size: number }
    state: StateStore
    chaos: { readonly engine: { readonly live: boolean } }
  },
): void {
  app.get('/metrics', async (_, reply) => {
    metrics.sessions.set(sessions.size)
    collectStates(metrics, state)
    metrics.chaosArmed.set(chaos.engine.live ? 1 : 0)
    metrics.serverUp.reset()
    metrics.serverTools.reset()
    for (const server of live.current.servers.values()) {
      metrics.serverUp.set({ server: server.name }, server.state === 'up' ? 1 : 0)
      metrics.serverTools.set({ server: server.name }, server.entries('tools').length)
    }
    return reply.type(metrics.registry.contentType).send(await metrics.registry.metrics())
  })
}
