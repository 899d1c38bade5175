import type { Controller } from '../chaos/control/controller.ts'
import { keepBootKeys } from '../config/boot-keys.ts'
import { loadConfig } from '../config/load.ts'
import type { ReloadReport } from '../config/reload-report.ts'
import { isLoopback } from '../config/schema/address.ts'
import type { Config } from '../config/schema/schema.ts'
import { watchFiles } from '../config/watch/watch.ts'
import { systemClock } from '../mesh/clock.ts'
import { Live } from '../mesh/live.ts'
import { during } from '../mesh/work.ts'
import { DynamicServers } from '../registry/dynamic-servers.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { lookForIdleGlobs } from '../registry/idle-globs.ts'
import { logState, warnOfCuts, warnOfNames } from '../registry/notices.ts'
import { Bodies, bodyRefusals, MAX_FIRST_BODY } from '../routes/bodies.ts'
import { Intents } from '../telemetry/intents.ts'
import type { Log } from '../telemetry/log.ts'
import { createMetrics } from '../telemetry/metrics.ts'
import { watchStalls } from '../telemetry/stalls.ts'
import { unfinishedCauses, UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import { createAgents } from './agents.ts'
import { applyConfig } from './apply-config.ts'
import { createChaos } from './chaos.ts'
import { registerControl } from './control-plane.ts'
import { keepToken, type KeptToken, newControlToken } from './control-token.ts'
import { registerData } from './data-plane.ts'
import { openDurable } from './durable-store.ts'
import { compileGeneration, type GenerationParts } from './generation.ts'
import { createControlGuards, createGuards } from './guards.ts'
import { addressOf, listenAt } from './listen.ts'
import { createControlPlane, createDataPlane } from './planes.ts'
import { createKit } from './policy-context.ts'
import { Reloader, withServers } from './reload.ts'
import { shutDown } from './shutdown.ts'
import { createSpans } from './spans.ts'

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
  /** The file with the control token; undefined when the config has one, or no file could be written. */
  readonly tokenFile: string | undefined
  readonly live: Live<GatewayGeneration>
  readonly chaos: Controller
  reload(trigger: string): Promise<ReloadReport>
  /** Stops accepting, lets calls in flight finish, ends all sessions and children. Idempotent. */
  close(): Promise<void>
}

/** Puts all parts together, and listens. Rejects when an address cannot be bound, with nothing left behind. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { config: file, path, files, env, log } = options
  const clock = systemClock
  const { gateway } = file
  const { environment, maxBody, controlToken } = gateway
  const current = () => live.current

  // Servers that were added at run time.
  const dynamic: DynamicServers = new DynamicServers({
    stateDir: gateway.stateDir,
    separator: gateway.separator,
    allowCommands: gateway.dynamicCommands,
    configured: () => reloader.configured,
    apply: () => reloader.refresh(),
  })
  await dynamic.load()
  if (dynamic.withheld.length > 0)
    log.warn(
      { servers: dynamic.withheld },
      'servers with a "command" that were added earlier stay away: gateway.dynamicCommands is false',
    )

  // What outlives all generations.
  const metrics = createMetrics()
  const durable = await openDurable({ stateDir: gateway.stateDir, clock, log })
  const kit = createKit(clock, log, metrics, durable)
  const chaos = createChaos({ clock, log, metrics, current, environment, variables: env })
  const { controller } = chaos
  const tracing = await createSpans({ clock, log, metrics, env, config: file.telemetry.traces, current })
  const intents = new Intents({ clock, metrics })
  for (const limit of unfinishedCauses) metrics.repliesEnded.cell({ limit })
  const replies = new UnfinishedReplies(gateway.limits.replies, (limit) =>
    metrics.repliesEnded.inc({ limit }),
  )
  const common = { clock, log, metrics, tracing, intents }
  const tune = ({ telemetry }: Config) => {
    metrics.tools.limit = telemetry.metrics.maxToolsPerServer
    intents.tune(telemetry.intents)
  }
  tune(file)

  // The generation in force, and the agents that it serves.
  const load = { inFlight: 0, detached: 0 }
  const parts: GenerationParts = {
    ...common,
    load,
    kit,
    chaos,
    replies,
    onStale: ({ name }) => agents.forgetLists(name),
    onChanged(server, changed) {
      agents.forgetLists(server.name)
      agents.tellChanged(changed)
      warnOfNames(log, live.current.names, server)
      warnOfCuts(log, server)
    },
    onState: (server) => logState(log, server),
  }
  const first = compileGeneration(withServers(file, dynamic.entries), undefined, parts)
  const live = new Live(first, clock, (calls) =>
    log.warn({ calls }, 'calls of an older config never ended: ending what was kept for them'),
  )
  const guards = createGuards(gateway, { clock, metrics, log })
  const agents = createAgents(live, clock, gateway.sessions, guards)

  // The way of the next config into force.
  const follow = (config: Config) => {
    controller.follow(config.chaos)
    guards.limits.tune(config.gateway.limits)
    guards.quotas.tune(config.gateway)
    replies.tune(config.gateway.limits.replies)
    for (const reading of [bodies, ownBodies]) reading.tune(config.gateway.limits.bodies)
    tune(config)
  }
  const inForce = { live, parts, state: kit.state, agents, follow }
  const reloader: Reloader = new Reloader(file, files, {
    ...common,
    load: () => loadConfig(path, env),
    apply: (config, renew) => during('reload', () => applyConfig(keepBootKeys(file, config), renew, inForce)),
    inForce: () => live.current.hash,
    added: () => dynamic.entries,
  })

  // The two planes.
  let closing: Promise<void> | undefined
  const data = addressOf(gateway.listen)
  const allowed = () => live.current.config.gateway
  const dataPlane = createDataPlane({ host: data.host, log, guards, allowed })
  for (const cause of bodyRefusals) metrics.bodiesRefused.cell({ cause })
  const bodies = new Bodies(clock, { maxBody, maxFirst: MAX_FIRST_BODY }, gateway.limits.bodies, (cause) =>
    metrics.bodiesRefused.inc({ cause }),
  )
  await registerData(dataPlane, {
    ...common,
    live,
    agents,
    guards,
    bodies,
    load,
    isStopping: () => closing !== undefined,
  })
  const control = addressOf(gateway.control)
  // Operators are not kept out by what agents send.
  const ownBodies = new Bodies(clock, { maxBody }, gateway.limits.bodies, () => undefined)
  const access = { token: controlToken ?? newControlToken(), openToRead: controlToken === undefined }
  const controlPlane = createControlPlane({
    host: control.host,
    bodies: ownBodies,
    log,
    guards: createControlGuards(gateway, clock),
    access,
  })
  registerControl(controlPlane, {
    ...common,
    live,
    sessions: agents.sessions,
    guards,
    bodies,
    replies,
    state: kit.state,
    chaos: controller,
    dynamic,
    reloader,
  })
  let kept: KeptToken | undefined
  const removeToken = async () => kept?.remove()
  const ends = {
    ...common,
    endStallWatch: watchStalls({ clock, log, metrics }),
    durable,
    dataPlane,
    controlPlane,
    live,
    agents,
    chaos: controller,
    load,
    removeToken,
  }
  let bound
  try {
    // Agents come last: none of them is to meet a gateway that ends because the other address is taken.
    const operators = await listenAt(control, controlPlane, 'gateway.control')
    if (access.openToRead)
      kept = await keepToken({ token: access.token, control: operators, stateDir: gateway.stateDir, env })
    bound = { data: await listenAt(data, dataPlane, 'gateway.listen'), control: operators }
  } catch (error) {
    await shutDown(ends)
    throw error
  }

  // From here on, it runs.
  controller.follow(live.current.config.chaos)
  for (const server of live.current.servers.values()) server.start()
  lookForIdleGlobs(log, live)
  const reload = (trigger: string) => reloader.reload(trigger)
  const changed = () => void reload('file')
  const watch = watchFiles(() => reloader.files, changed, { clock })
  const tokenFile = kept?.files[0]
  log.info({ ...bound, tokenFile }, 'listening')
  if (kept !== undefined) warnOfToken(kept, log)
  if (!isLoopback(data.host))
    log.warn({ listen: gateway.listen }, 'agents of other machines can reach this gateway')

  return {
    ...bound,
    tokenFile,
    live,
    chaos: controller,
    reload,
    close() {
      watch.close()
      return (closing ??= shutDown(ends))
    },
  }
}

/** Without its token nobody changes anything over the control plane, which reading and stopping faults do not need. */
function warnOfToken({ files, problems }: KeptToken, log: Log): void {
  if (problems.length === 0) return
  if (files.length > 0)
    return log.warn({ problems }, 'the control token is not in every place where it should be')
  log.error(
    { problems },
    'the control token could not be kept, so the control plane changes nothing: set XDG_RUNTIME_DIR, gateway.stateDir or gateway.controlToken',
  )
}
