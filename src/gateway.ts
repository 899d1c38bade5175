import { createAgents } from './agents.ts'
import { changeOver } from './changeover.ts'
import type { Controller } from './chaos/control/controller.ts'
import { createChaos } from './chaos-wiring.ts'
import { keepBootKeys } from './config/boot-keys.ts'
import { loadConfig } from './config/load.ts'
import { isLoopback } from './config/schema/address.ts'
import type { Config } from './config/schema/schema.ts'
import { watchFiles } from './config/watch/watch.ts'
import { registerControl } from './control.ts'
import { registerData } from './data.ts'
import { compileGeneration, type GenerationParts } from './generation.ts'
import { openDurable } from './durable-store.ts'
import { createGuards } from './create-guards.ts'
import { createKit } from './kit.ts'
import { addressOf, listenAt } from './listen.ts'
import { systemClock } from './mesh/clock.ts'
import { Live } from './mesh/live.ts'
import { during } from './mesh/work.ts'
import { createControlPlane, createDataPlane } from './planes.ts'
import { DynamicServers } from './registry/dynamic-servers.ts'
import type { GatewayGeneration } from './registry/generation.ts'
import { lookForIdleGlobs } from './registry/idle-globs.ts'
import { logState, warnOfNames } from './registry/notices.ts'
import { Reloader, withServers, type ReloadReport } from './reload.ts'
import { shutDown } from './shutdown.ts'
import { createSpans } from './spans.ts'
import { Intents } from './telemetry/intents.ts'
import type { Log } from './telemetry/log.ts'
import { createMetrics } from './telemetry/metrics.ts'
import { watchStalls } from './telemetry/stalls.ts'

export interface GatewayOptions {
  /** The config, read already; `path` is read again at a reload. */
  readonly config: Config
  readonly path: string
  readonly files: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly log: Log
}

/** A gateway that listens. */
export interface Gateway {
  /** Base URL of the data plane. */
  readonly data: string
  /** Base URL of the control plane. */
  readonly control: string
  readonly live: Live<GatewayGeneration>
  readonly chaos: Controller
  reload(trigger: string): Promise<ReloadReport>
  /** Stops accepting, lets calls in flight finish, ends all sessions and children. Idempotent. */
  close(): Promise<void>
}

/** Puts all parts together, and listens. Rejects when an address cannot be bound. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { config: file, path, files, env, log } = options
  const clock = systemClock
  const { gateway } = file
  const { environment, maxBody, controlToken: token } = gateway
  const current = () => live.current

  // Servers that were added at run time.
  const dynamic: DynamicServers = new DynamicServers({
    stateDir: gateway.stateDir,
    separator: gateway.separator,
    configured: () => reloader.configured,
    apply: () => reloader.refresh(),
  })
  await dynamic.load()

  // What outlives all generations.
  const metrics = createMetrics()
  const endStallWatch = watchStalls({ clock, log, metrics })
  const durable = await openDurable({ stateDir: gateway.stateDir, clock, log })
  const kit = createKit(clock, log, metrics, durable)
  const chaos = createChaos({ clock, log, metrics, current, environment, variables: env })
  const { controller } = chaos
  const tracing = await createSpans({ clock, log, metrics, env, config: file.telemetry.traces, current })
  const intents = new Intents({ clock, metrics })
  const common = { clock, log, metrics, tracing, intents }
  const tune = ({ telemetry }: Config) => {
    metrics.tools.limit = telemetry.metrics.maxToolsPerServer
    intents.tune(telemetry.intents)
  }
  tune(file)

  // The generation in force, and the agents that it serves.
  const parts: GenerationParts = {
    ...common,
    kit,
    chaos,
    onChanged(server, changed) {
      agents.tellChanged(changed)
      if (changed.includes('tools')) warnOfNames(log, live.current.names, server)
    },
    onState: (server) => logState(log, server),
  }
  const first = compileGeneration(withServers(file, dynamic.entries), undefined, parts)
  const live = new Live(first, clock, (calls) =>
    log.warn({ calls }, 'calls of an older config never ended: ending what was kept for them'),
  )
  const guards = createGuards(gateway, { clock, metrics })
  const agents = createAgents(live, clock, gateway.sessions, guards)

  // The way of the next config into force.
  const follow = (config: Config) => {
    controller.apply(config.chaos)
    guards.limits.tune(config.gateway.limits)
    tune(config)
  }
  const inForce = { live, parts, state: kit.state, agents, follow }
  const reloader: Reloader = new Reloader(file, files, {
    ...common,
    load: () => loadConfig(path, env),
    apply: (config, renew) => during('reload', () => changeOver(keepBootKeys(file, config), renew, inForce)),
    added: () => dynamic.entries,
  })

  // The two planes.
  const load = { inFlight: 0 }
  let closing: Promise<void> | undefined
  const data = addressOf(gateway.listen)
  const allowed = () => live.current.config.gateway
  const dataPlane = createDataPlane({ host: data.host, maxBody, log, allowed })
  await registerData(dataPlane, { ...common, live, agents, load, isStopping: () => closing !== undefined })
  const control = addressOf(gateway.control)
  const controlPlane = createControlPlane({ host: control.host, maxBody, log, token })
  registerControl(controlPlane, {
    ...common,
    live,
    sessions: agents.sessions,
    state: kit.state,
    chaos: controller,
    dynamic,
    reloader,
    token,
  })
  const bound = { data: await listenAt(data, dataPlane), control: await listenAt(control, controlPlane) }

  // From here on, it runs.
  controller.apply(live.current.config.chaos)
  for (const server of live.current.servers.values()) server.start()
  lookForIdleGlobs(log, live)
  const reload = (trigger: string) => reloader.reload(trigger)
  const changed = () => void reload('file')
  const watch = watchFiles(() => reloader.files, changed, { clock })
  log.info(bound, 'listening')
  if (!isLoopback(data.host))
    log.warn({ listen: gateway.listen }, 'agents of other machines can reach this gateway')

  const ends = { ...common, durable, dataPlane, controlPlane, live, agents, chaos: controller, load }
  return {
    ...bound,
    live,
    chaos: controller,
    reload,
    close() {
      watch.close()
      endStallWatch()
      return (closing ??= shutDown(ends))
    },
  }
}
