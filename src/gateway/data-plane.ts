import type { FastifyInstance } from 'fastify'
import type { Agents } from './agents.ts'
import { AggregateFront } from '../downstream/aggregate-front.ts'
import type { Guards } from '../downstream/guards.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Bodies } from '../routes/bodies.ts'
import { registerHealth } from '../routes/health.ts'
import { registerMcp } from '../routes/mcp.ts'
import { registerPassthrough } from '../routes/passthrough.ts'
import type { Log } from '../telemetry/log.ts'

export interface DataParts {
  readonly live: Live<GatewayGeneration>
  readonly agents: Agents
  readonly guards: Guards
  readonly clock: Clock
  readonly log: Log
  /** Reads request bodies. */
  readonly bodies: Bodies
  /** Calls that are under way; the drain waits for it to fall to 0. */
  readonly load: { inFlight: number }
  /** True from the first sign of the end on. */
  readonly isStopping: () => boolean
}

/** Everything that the data plane answers; each part reads bodies in its own way. */
export async function registerData(app: FastifyInstance, parts: DataParts): Promise<void> {
  const { live, agents, guards, clock, log, bodies, load, isStopping } = parts
  const { legacy, modern } = agents
  const { quotas } = guards
  await app.register(async (scope) => registerPassthrough(scope, { live, clock, log, load, quotas }))
  await app.register((scope, _, done) => {
    const aggregate = new AggregateFront(clock)
    registerMcp(scope, { live, aggregate, legacy, modern, quotas, log, bodies, load })
    done()
  })
  registerHealth(app, { live, isStopping })
}
