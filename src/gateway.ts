import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { isLoopback, parseAddress, type Address } from './config/schema/address.ts'
import { keepBootKeys } from './config/boot-keys.ts'
import { loadConfig } from './config/load.ts'
import type { Config } from './config/schema/schema.ts'
import { watchFiles } from './config/watch/watch.ts'
import { AggregateFront } from './downstream/aggregate-front.ts'
import { LegacyEndpoint } from './downstream/legacy.ts'
import { ModernEndpoint } from './downstream/modern/endpoint.ts'
import { Sessions } from './downstream/sessions.ts'
import type { Controller } from './chaos/control/controller.ts'
import { createChaos } from './chaos-wiring.ts'
import { compileGeneration, type GenerationParts } from './generation.ts'
import { registerControl } from './control.ts'
import { createKit } from './kit.ts'
import { systemClock } from './mesh/clock.ts'
import { DEFAULT_SET } from './mesh/compile.ts'
import { Live } from './mesh/live.ts'
import { createControlPlane, createDataPlane } from './planes.ts'
import { DynamicServers } from './registry/dynamic-servers.ts'
import type { GatewayGeneration } from './registry/generation.ts'
import { warnOfIdleGlobs } from './registry/idle-globs.ts'
import { listKinds } from './registry/kinds.ts'
import { logState, warnOfNames } from './registry/notices.ts'
import { Reloader, withServers, type ReloadReport } from './reload.ts'
import { registerHealth } from './routes/health.ts'
import { registerMcp } from './routes/mcp.ts'
import { registerPassthrough } from './routes/passthrough.ts'
import { createSpans } from './spans.ts'
import { shutDown } from './shutdown.ts'
import type { Log } from './telemetry/log.ts'
import { Intents } from './telemetry/intents.ts'
import { createMetrics } from './telemetry/metrics.ts'

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
export async function startGateway({
  config: file,
  path,
  files,
  env,
  log,
}: GatewayOptions): Promise<Gateway> {
  const clock = systemClock
  const metrics = createMetrics()
  const { gateway } = file

  const dynamic: DynamicServers = new DynamicServers({
    stateDir: gateway.stateDir,
    separator: gateway.separator,
    configured: () => reloader.configured,
    apply: () => reloader.refresh(),
  })
  await dynamic.load()

  const kit = createKit(clock, log, metrics)
  const { environment } = gateway
  const chaos = createChaos({ clock, log, metrics, current: () => live.current, environment, variables: env })
  const current = () => live.current
  const { traces } = file.telemetry
  const tracing = await createSpans({ clock, log, metrics, env, config: traces, current })
  const intents = new Intents({ clock, metrics })
  const tune = ({ telemetry }: Config) => {
    metrics.tools.limit = telemetry.metrics.maxToolsPerServer
    intents.tune(telemetry.intents)
  }
  tune(file)
  const parts: GenerationParts = {
    intents,
    tracing,
    clock,
    log,
    metrics,
    kit,
    chaos,
    onChanged: (server, changed) => {
      sessions.tellChanged(changed)
      modern.listening.tellChanged(changed)
      if (changed.includes('tools')) warnOfNames(log, live.current.names, server)
    },
    onState: (server) => logState(log, server),
  }
  const config = withServers(file, dynamic.entries)
  const live = new Live(compileGeneration(config, undefined, parts), clock, gateway.drain)
  const sessions = new Sessions(live, clock, gateway.sessions)
  const legacy = new LegacyEndpoint(live, sessions, clock)
  const modern = new ModernEndpoint(live, clock)
  const load = { inFlight: 0 }
  let stopping = false

  /** Boot-time keys keep their first value, whatever the file says now. */
  function apply(next: Config, renew: ReadonlySet<string>): void {
    const before = live.current
    const generation = compileGeneration(keepBootKeys(file, next), before, parts, renew)
    live.swap(generation)
    kit.state.prune(({ server, set }) => isKnown(generation, server, set))
    for (const server of generation.servers.values())
      if (before.servers.get(server.name) !== server) server.start()
    for (const name of renew) void before.servers.get(name)?.close()
    chaos.controller.apply(generation.config.chaos)
    tune(generation.config)
    lookOver(generation)
    sessions.closeOrphans()
    modern.listening.end(({ server }) => server !== undefined && !generation.servers.has(server))
    if (sameServers(before, generation)) return
    sessions.tellChanged(listKinds)
    modern.listening.tellChanged(listKinds)
  }

  /** Says what is odd about a config in view of the tools that there are, once they are known. */
  function lookOver(generation: GatewayGeneration): void {
    const settled = [...generation.servers.values()].map((server) => server.settled)
    void Promise.all(settled).then(() => {
      if (live.current === generation) warnOfIdleGlobs(log, generation)
    })
  }

  const reloader: Reloader = new Reloader(file, files, {
    load: () => loadConfig(path, env),
    apply,
    added: () => dynamic.entries,
    clock,
    log,
    metrics,
  })

  const listen = addressOf(gateway.listen)
  const control = addressOf(gateway.control)
  const dataPlane = createDataPlane({
    host: listen.host,
    maxBody: gateway.maxBody,
    log,
    allowed: () => ({
      hosts: live.current.config.gateway.allowedHosts,
      origins: live.current.config.gateway.allowedOrigins,
    }),
  })
  await dataPlane.register(async (app) => registerPassthrough(app, live))
  await dataPlane.register((app, _, done) => {
    registerMcp(app, { live, aggregate: new AggregateFront(clock), legacy, modern, log, load })
    done()
  })
  registerHealth(dataPlane, { live, isStopping: () => stopping })

  const controlPlane = createControlPlane({
    host: control.host,
    maxBody: gateway.maxBody,
    log,
    token: gateway.controlToken,
  })
  registerControl(controlPlane, {
    live,
    clock,
    metrics,
    intents,
    sessions,
    state: kit.state,
    chaos: chaos.controller,
    dynamic,
    reloader,
    token: gateway.controlToken,
  })

  const planes = { dataPlane, controlPlane }
  const bound = { data: await bind(dataPlane, listen), control: await bind(controlPlane, control) }
  chaos.controller.apply(live.current.config.chaos)
  for (const server of live.current.servers.values()) server.start()
  lookOver(live.current)
  const watch = watchFiles(
    () => reloader.files,
    () => void reloader.reload('file'),
    { clock },
  )
  log.info(bound, 'listening')
  if (!isLoopback(listen.host))
    log.warn({ listen: gateway.listen }, 'agents of other machines can reach this gateway')

  let closing: Promise<void> | undefined
  return {
    ...bound,
    live,
    chaos: chaos.controller,
    reload: (trigger) => reloader.reload(trigger),
    close() {
      stopping = true
      watch.close()
      return (closing ??= shutDown({
        tracing,
        intents,
        ...planes,
        live,
        sessions,
        modern,
        chaos: chaos.controller,
        load,
        clock,
        log,
      }))
    },
  }
}

function addressOf(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new Error(`not an address: ${text}`)
  return address
}

async function bind(app: FastifyInstance, { host, port }: Address): Promise<string> {
  await app.listen({ host, port })
  const { address, family, port: bound } = app.server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}

/** Whether there is still a server and a policy set of these names; the gateway's own state has no server. */
function isKnown({ servers, config }: GatewayGeneration, server: string, set: string): boolean {
  return (
    (server === '' || servers.has(server)) &&
    (set === DEFAULT_SET || Object.hasOwn(config.policies.sets, set))
  )
}

function sameServers(a: GatewayGeneration, b: GatewayGeneration): boolean {
  return (
    a.servers.size === b.servers.size &&
    [...a.servers.values()].every((server) => b.servers.get(server.name) === server)
  )
}
