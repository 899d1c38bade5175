import { createHash, randomInt } from 'node:crypto'
import { join, resolve } from 'node:path'
import { environmentLock } from '../chaos/control/guard.ts'
import type { Controller } from '../chaos/control/controller.ts'
import { keepBootKeys, type ReloadReport } from '../config/boot-keys.ts'
import { configHash } from '../config/hash.ts'
import type { FilesRead } from '../config/load.ts'
import { loadApart } from '../config/load-apart.ts'
import { limitsOf } from '../config/limits.ts'
import { isLoopback } from '../units/address.ts'
import type { Config } from '../config/schema/schema.ts'
import { watchFiles } from '../config/watch/watch.ts'
import { systemClock } from '../mesh/clock.ts'
import { Experiments } from '../experiments/experiments.ts'
import { GuardedArms } from '../experiments/guarded/arms.ts'
import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import { armNames } from '../experiments/schema.ts'
import type { GameDays } from '../gamedays/gamedays.ts'
import { createKeyedRandom } from '../mesh/keyed-random.ts'
import { Live } from '../mesh/live.ts'
import { during } from '../mesh/work.ts'
import type { ListKind } from '../protocol/lists.ts'
import { DynamicServers } from '../registry/dynamic-servers.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { HealthWatch } from '../registry/health/watch.ts'
import { logState, lookForIdleGlobs, warnOfCuts, warnOfNames } from '../registry/log-lines.ts'
import type { KnownServer } from '../registry/known-server.ts'
import type { Server } from '../registry/server.ts'
import { Bodies, bodyRefusals, MAX_FIRST_BODY } from '../downstream/http/bodies.ts'
import { Intents } from '../telemetry/intents.ts'
import { TaskCalls } from '../telemetry/task-calls.ts'
import { restoreRuns } from '../telemetry/collect-plans.ts'
import { noteExperiments } from '../telemetry/events.ts'
import type { Log } from '../telemetry/log.ts'
import type { Effects } from '../telemetry/recording/format.ts'
import { Recorder } from '../telemetry/recording/recorder.ts'
import { watchStalls } from '../telemetry/stalls.ts'
import { unfinishedCauses, UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import { createAgents } from './agents.ts'
import { policiesOf } from '../config/call-timeouts.ts'
import { retries } from '../policies/retry/tries.ts'
import { createChaos } from './chaos.ts'
import type { ControlMcp } from './control-mcp/control-mcp.ts'
import { RecentTraffic } from '../control/mcp/traffic.ts'
import { Trust } from '../approval/trust.ts'
import { createEvents } from './events.ts'
import { listenersOf, openGameDays, tellWebhook } from './gamedays.ts'
import { hearing, type OpenedGuarded, openGuarded, signOf } from './guarded/guarded.ts'
import { keepToken, type KeptToken, newControlToken, openRunFolder } from './control-token.ts'
import { type CallListener, compileGeneration, type GenerationParts } from './generation.ts'
import { stopListening } from '../downstream/http/server.ts'
import { createControlGuards, createGuards } from './guards.ts'
import { addressOf, createControlPlane, createDataPlane, listenAt, registerControl } from './planes.ts'
import { createPolicyContext, openDurable } from './policy-context.ts'
import { applyConfig, prepareConfig, Reloader, withServers } from './reload.ts'
import { shutDown } from './shutdown.ts'
import { createGatewayMetrics, createSpans, exportMetrics } from './spans.ts'

export interface GatewayOptions {
  /** The parsed config. A reload reads `path` again. */
  readonly config: Config
  readonly path: string
  /** The config's files, watched for changes; undefined: no file is watched. */
  readonly files?: FilesRead
  readonly env: Readonly<Record<string, string | undefined>>
  readonly log: Log
  /** True when a kill of faults outlives the process; default true. */
  readonly keepsKill?: boolean
}

export interface Gateway {
  /** Base URL of the data plane. */
  readonly data: string
  /** Base URL of the control plane. */
  readonly control: string
  /** Base URL of the control MCP server; undefined when off. */
  readonly controlMcp: string | undefined
  /** The file with the control token; undefined when the config sets a token, or no file could be written. */
  readonly tokenFile: string | undefined
  readonly live: Live<GatewayGeneration>
  readonly chaos: Controller
  reload(trigger: string): Promise<ReloadReport>
  /** Refuses new connections, waits for calls in flight, and ends all sessions and child processes. Idempotent. */
  close(): Promise<void>
}

/** Default of `gateway.environment`. */
const PRODUCTION = 'production'

/** Starts a gateway. Rejects, after a full cleanup, when an address cannot be bound. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { config: file, path, files = new Map<string, string>(), env, log } = options
  const clock = systemClock
  const { gateway } = file
  const { environment = PRODUCTION, chaosEnvironments, maxBody, controlToken } = gateway
  const bounds = limitsOf(gateway)

  const { stateDir, separator } = gateway
  const events = createEvents()
  const refresh = () => void events.emit('refreshWanted')

  // The generation in force, and state shared by all generations.
  const live = new Live<GatewayGeneration>(clock, (calls) =>
    log.warn({ calls }, 'calls of an older config did not end in time: closing its servers and state'),
  )
  const dynamic = new DynamicServers({
    stateDir,
    separator,
    allowCommands: gateway.dynamicCommands,
    inForce: () => live.current.config.mcpServers,
    apply: refresh,
  })
  await dynamic.load()
  if (dynamic.withheld.length > 0)
    log.warn(
      { servers: dynamic.withheld },
      'servers with a "command", added earlier, are not started: gateway.dynamicCommands is false',
    )

  const metrics = createGatewayMetrics({ env, config: file.telemetry.metrics, live })
  const { store: durable, problem: stateProblem } = await openDurable({ stateDir, clock, log })
  const policyContext = createPolicyContext(clock, log, metrics, durable)
  const context = hearing(policyContext, (server, sign) => void events.emit('sign', server, sign))
  // Draws the back-off of webhook retries. The seed is random, so that gateways with the same webhook do not retry in
  // step.
  const random = createKeyedRandom(randomInt(2 ** 32))
  const health = new HealthWatch({ clock, random, log, metrics, stateDir, environment })
  await health.load()
  events.on('probed', (server, probe, result) => health.probed(server, probe, result))
  events.on('serverState', (server) => logState(log, server))
  const tracing = await createSpans({ clock, log, metrics, env, config: file.telemetry.traces, live })
  const metricsExport = await exportMetrics({ clock, log, metrics, env, config: file.telemetry.metrics })

  // Chaos.
  const killRecord = options.keepsKill === false ? undefined : await killRecordOf(options)
  const chaos = createChaos({
    clock,
    log,
    metrics,
    live,
    environment: gateway.environment,
    chaosEnvironments,
    variables: env,
    killRecord,
    stateDir,
    events,
  })
  const { controller } = chaos

  // Experiments.
  const forget = (names: readonly string[]) => names.forEach((arm) => context.state.forgetSet(arm))
  const noteExperiment = noteExperiments(log)
  const experiments: Experiments = new Experiments({
    clock,
    quiet: () => live.current.config.telemetry.intents.idle,
    refresh,
    forget,
    emit(event) {
      noteExperiment(event)
      if (event.type === 'ended') void opened.index?.addComparison(event.run)
    },
    taken: () => arms.taken,
  })
  const arms: GuardedArms = new GuardedArms(experiments, clock, retries, forget)
  const intents = new Intents({
    clock,
    metrics,
    onOutcome: (intent, arm, outcome) => {
      const { source, tenant, id } = intent
      // For a comparison, a task with less than its user asked for did not succeed.
      experiments.report({ source, tenant, id, arm }, outcome === 'succeeded' ? 'succeeded' : 'failed')
      // A task with several arms is one task of the recording.
      if (arm === intent.arm && recorder.open !== undefined) recorder.outcome(intent, outcome)
    },
  })
  for (const limit of unfinishedCauses) metrics.repliesEnded.series({ limit })
  const replies = new UnfinishedReplies(bounds.replies, (limit) => metrics.repliesEnded.inc({ limit }))
  const recorder = new Recorder({
    clock,
    log,
    environment,
    effectOf: (call) => live.current.mesh.effectOf(call),
    effects: () => effectsOf(live.current),
    onDropped: (count) => metrics.recordingDropped.inc({}, count),
  })
  const taskCalls = new TaskCalls(clock)
  const common = { clock, log, metrics, tracing, intents, taskCalls, experiments, recorder }
  const tune = (config: Config) => {
    const { telemetry } = config
    metrics.tools.limit = telemetry.metrics.maxToolsPerServer
    intents.tune(telemetry.intents)
    recorder.follow(telemetry.recording, configHash(policiesOf(config)))
  }
  const followArms = ({ experiments }: Config) =>
    metrics.arms.follow([...armNames(experiments), ...arms.names])
  tune(file)
  followArms(file)

  // The first generation.
  const load = { inFlight: 0, detached: 0 }
  const traffic = gateway.controlMcp === undefined ? undefined : new RecentTraffic(clock)
  const listeners = new Set<() => readonly CallListener[]>()
  if (traffic !== undefined) listeners.add(() => [(...call) => traffic.add(...call)])
  const parts: GenerationParts = {
    ...common,
    experiments: arms,
    load,
    listeners: () => [...listeners].flatMap((listenersNow) => listenersNow()),
    context,
    chaos,
    replies,
    http: file.gateway.http,
    events,
  }
  const first = compileGeneration(withServers(file, dynamic.entries), undefined, parts)
  live.swap(first)

  // Downstream.
  const controlGuards = createControlGuards(gateway, clock)
  const guards = createGuards(gateway, { clock, metrics, log })
  const agents = createAgents(
    live,
    clock,
    gateway.sessions,
    guards,
    ({ endpoint, version, beganAt }, error) =>
      metrics.operations?.serverSessionOver(
        endpoint.server,
        version,
        (clock.now() - beganAt) / 1_000,
        error?.reason,
      ),
  )
  const tellAgents = ({ name }: KnownServer, changed: readonly ListKind[]) => {
    agents.forgetLists(name)
    if (changed.length > 0) agents.tellChanged(changed)
  }
  events.on('listsChanged', tellAgents)
  events.on('catalogChanged', tellAgents)
  events.on('catalogChanged', (server) => {
    warnOfNames(log, live.current.names, server)
    warnOfCuts(log, server)
  })
  for (const cause of bodyRefusals) metrics.bodiesRefused.series({ cause })
  const bodies = new Bodies(
    clock,
    { maxBody, maxFirst: MAX_FIRST_BODY, agentOf: agents.nameOf },
    bounds.bodies,
    (cause) => metrics.bodiesRefused.inc({ cause }),
  )
  // A separate limit, so that bodies of agents cannot block operators.
  const ownBodies = new Bodies(clock, { maxBody }, bounds.bodies, () => undefined)

  // Reloads. Arms and guarded runs can change without a config change, so both follow at each reload.
  const follow = (config: Config, changed: ReadonlySet<keyof Config>) => {
    experiments.follow(config)
    followArms(config)
    guarded.follow()
    const servers = changed.has('mcpServers')
    if (servers || changed.has('chaos')) chaos.follow(config)
    if (servers || changed.has('health')) health.follow(config)
    if (changed.has('telemetry') || changed.has('policies')) tune(config)
    if (changed.has('gateway')) tuneGuards(config.gateway)
  }
  const tuneGuards = (gateway: Config['gateway']) => {
    guards.limits.tune(gateway.limits)
    guards.tarpit.tune(gateway.limits.rejectionPause)
    const bounds = limitsOf(gateway)
    guards.quotas.tune(bounds.shares)
    guards.replay.limits = bounds.replay
    replies.limits = bounds.replies
    for (const { unread } of [guards, controlGuards]) unread.limits = bounds.unread
    for (const reading of [bodies, ownBodies]) reading.limits = bounds.bodies
  }
  const inForce = { live, parts, state: context.state, agents, follow }
  const reloader: Reloader = new Reloader(file, files, {
    ...common,
    load: (before) => loadApart(path, env, before),
    apply: (config, renew) => during('reload', () => applyConfig(keepBootKeys(file, config), renew, inForce)),
    async prepare(config) {
      const putIntoForce = await prepareConfig(keepBootKeys(file, config), inForce)
      return () => during('reload', putIntoForce)
    },
    inForce: () => live.current.hash,
    unarmed: () => controller.unarmed,
    added: () => dynamic.entries,
  })
  events.on('refreshWanted', () => reloader.refresh())
  let controlMcp: ControlMcp | undefined
  const trust = new Trust(gateway.controlMcp?.trust ?? [])
  const opened: OpenedGuarded = await openGuarded({
    ...common,
    needsSignature: trust.size > 0,
    mayApproveOwn: (gateway.controlMcp?.approval ?? (trust.size > 1 ? 'other' : 'self')) === 'self',
    onOver(run) {
      controlMcp?.ended(run)
      gameDays.ended(run)
    },
    exceededBy: (...run) => controlMcp?.agentRuns.active.exceededBy(...run),
    controller,
    arms,
    state: context.state,
    live,
    refresh,
    data: () => bound?.data,
    stateDir,
    environment,
    stateProblem,
  })
  const guarded: GuardedExperiments = opened.guarded
  const gameDays: GameDays = await openGameDays({
    clock,
    log,
    guarded,
    find: opened.find,
    index: opened.index,
    live,
    health,
    agents: () => controlMcp,
    refresh,
    stateDir,
    stateProblem,
    environment,
  })
  listeners.add(() => listenersOf(gameDays))
  restoreRuns(metrics, opened.plans)
  const noticed = (server: string, sign: string | undefined) => {
    if (sign !== undefined) guarded.noticed(server, sign)
  }
  events.on('sign', noticed)
  if (gateway.controlMcp !== undefined && traffic !== undefined) {
    const { openControlMcp } = await import('./control-mcp/control-mcp.ts')
    controlMcp = await openControlMcp(gateway, {
      clock,
      log,
      live,
      state: context.state,
      controller,
      incidents: health.incidents,
      guarded,
      gameDays,
      earlier: opened.earlier,
      findRun: opened.find,
      traffic,
      trust,
      // A rule of the config demands the folder.
      stateDir: stateDir!,
      control: () => bound?.control,
      environment,
      guards: createControlGuards(gateway, clock),
    })
    const { signals } = controlMcp
    events.on('sign', (server) => signals.transition(server))
    events.on('probed', ({ name }) => signals.incident(name, health.incidents.openOf(name)?.id))
  }
  events.on('serverState', (server) => noticed(server.name, signOf(server)))
  events.on('probed', ({ name }, { took }, { state, failure }) => {
    const tookMs = Object.values(took).reduce((sum, ms) => sum + ms, 0)
    guarded.probed({ server: name, state, reason: failure?.reason, tookMs })
  })

  // The two planes.
  let bound: Pick<Gateway, 'data' | 'control' | 'controlMcp'> | undefined
  let closing: Promise<void> | undefined
  const data = addressOf(gateway.listen)
  const dataPlane = await createDataPlane({
    ...common,
    host: data.host,
    live,
    agents,
    guards,
    bodies,
    http: gateway.http,
    load,
    isStopping: () => closing !== undefined,
  })
  const control = addressOf(gateway.control)
  const access = { token: controlToken ?? newControlToken(), openToRead: controlToken === undefined }
  const controlPlane = createControlPlane({
    clock,
    host: control.host,
    bodies: ownBodies,
    log,
    guards: controlGuards,
    access,
  })
  registerControl(controlPlane, {
    ...common,
    live,
    sessions: agents.sessions,
    guards,
    bodies,
    replies,
    state: context.state,
    chaos: controller,
    dynamic,
    incidents: health.incidents,
    guarded,
    gameDays,
    plans: opened.plans,
    runIndex: opened.index,
    agentRuns: controlMcp?.agentRuns,
    agentNames: controlMcp?.agents ?? [],
    reloader,
  })
  let kept: KeptToken | undefined
  const removeToken = async () => kept?.remove()
  const ends = {
    ...common,
    metricsExport,
    endStallWatch: watchStalls({ clock, log, metrics }),
    durable,
    dataPlane: {
      stopListening: (ended: () => void) => stopListening(dataPlane.server, ended),
      closeIdleConnections: () => dataPlane.server.closeIdleConnections(),
      close: () => dataPlane.close(),
    },
    controlPlane,
    live,
    agents,
    guards,
    reloader,
    chaos: controller,
    health,
    load,
    removeToken,
  }
  try {
    // The data plane listens last. If the control address is taken, the gateway stops before any agent can connect.
    const operators = await listenAt(control, controlPlane, 'gateway.control')
    if (access.openToRead)
      kept = await keepToken({ token: access.token, control: operators, stateDir: gateway.stateDir, env })
    const agentsControl = await controlMcp?.listen()
    if (agentsControl !== undefined)
      log.info({ controlMcp: `${agentsControl}/mcp` }, 'the control MCP server listens')
    bound = {
      data: await listenAt(data, dataPlane, 'gateway.listen'),
      control: operators,
      controlMcp: agentsControl,
    }
  } catch (error) {
    await shutDown(ends)
    throw error
  }

  experiments.follow(live.current.config)
  chaos.follow(live.current.config)
  health.follow(live.current.config)
  // The last process may have ended before its webhook heard of the pause.
  if (gameDays.current !== undefined) tellWebhook(gameDays.current, { clock, health })
  for (const server of live.current.servers.values()) server.start()
  lookForIdleGlobs(log, live)
  const reload = (trigger: string) => reloader.reload(trigger)
  const changed = () => reload('file')
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
      return (closing ??= gameDays
        .close()
        .then(() => guarded.close())
        .then(() => opened.index?.close())
        .then(() => controlMcp?.close())
        .then(() => shutDown(ends)))
    },
  }
}

/**
 * Returns the file that stores a kill across restarts: in the state folder, else a file for this config path in the run
 * folder.
 */
async function killRecordOf({ config, path, env }: GatewayOptions): Promise<string | undefined> {
  const { stateDir, environment, chaosEnvironments } = config.gateway
  if (stateDir !== undefined) return join(stateDir, 'chaos-kill.json')
  // An environment without chaos needs no kill record.
  if (environmentLock({ environment, chaosEnvironments, variables: env }) !== undefined) return undefined
  const folder = await openRunFolder(env)
  const name = createHash('sha256').update(resolve(path)).digest('hex').slice(0, 16)
  return folder && join(folder, `chaos-kill-${name}.json`)
}

/** Warns about missing token files. Without a token, the control plane only allows reading and stopping faults. */
function warnOfToken({ files, problems }: KeptToken, log: Log): void {
  if (problems.length === 0) return
  if (files.length > 0) return log.warn({ problems }, 'the control token file is missing in some folders')
  log.error(
    { problems },
    'no control token file could be written, so the control plane refuses changes: set XDG_RUNTIME_DIR, gateway.stateDir or gateway.controlToken',
  )
}

function effectsOf({ servers, mesh }: GatewayGeneration): Effects {
  const ofServer = (server: Server) =>
    server
      .entries('tools')
      .map(({ key: tool }) => [tool, mesh.effectOf({ server: server.name, method: 'tools/call', tool })])
  return Object.fromEntries(
    [...servers.values()].map((server) => [
      server.name,
      Object.fromEntries(ofServer(server)) as Effects[string],
    ]),
  )
}
