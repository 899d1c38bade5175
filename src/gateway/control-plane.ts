import type { FastifyInstance } from 'fastify'
import type { Controller } from '../chaos/control/controller.ts'
import type { PlanTarget } from '../chaos/plan/checks.ts'
import type { Guards } from '../downstream/guards.ts'
import type { Sessions } from '../downstream/sessions.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import type { DynamicServers } from '../registry/dynamic-servers.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { registerAdminChaos } from '../routes/admin-chaos.ts'
import { registerAdminMesh } from '../routes/admin-mesh.ts'
import { registerAdminOutcomes } from '../routes/admin-outcomes.ts'
import { registerAdminServers } from '../routes/admin-servers.ts'
import { registerAdmin } from '../routes/admin.ts'
import type { Bodies } from '../routes/bodies.ts'
import { registerChaos } from '../routes/chaos.ts'
import { registerMetrics } from '../routes/metrics.ts'
import type { Intents } from '../telemetry/intents.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import type { Reloader } from './reload.ts'

export interface ControlParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly metrics: Metrics
  readonly intents: Intents
  readonly sessions: Sessions
  readonly guards: Guards
  /** Those of the data plane. */
  readonly bodies: Bodies
  readonly replies: UnfinishedReplies
  readonly state: StateStore
  readonly chaos: Controller
  readonly dynamic: DynamicServers
  readonly reloader: Reloader
}

/** Everything that the control plane answers. */
export function registerControl(app: FastifyInstance, parts: ControlParts): void {
  const {
    live,
    clock,
    metrics,
    intents,
    sessions,
    guards,
    bodies,
    replies,
    state,
    chaos,
    dynamic,
    reloader,
  } = parts
  const targets = () => targetsOf(live.current)
  registerMetrics(app, { live, clock, metrics, sessions, guards, bodies, replies, intents, state, chaos })
  registerAdmin(app, { live, sessions, clock, reload: () => reloader.reload('admin') })
  registerAdminMesh(app, { live, state })
  registerAdminServers(app, { live, state, dynamic, restart: (name) => reloader.refresh(new Set([name])) })
  registerAdminChaos(app, { chaos, clock, targets })
  registerAdminOutcomes(app, { clock, chaos, intents })
  registerChaos(app, { chaos, targets })
}

/** The servers that a plan may aim at. */
function targetsOf({ servers }: GatewayGeneration): PlanTarget[] {
  return [...servers.values()].map(({ name, config, onlyEra }) => ({
    name,
    kind: { transport: config.type, era: onlyEra },
  }))
}
