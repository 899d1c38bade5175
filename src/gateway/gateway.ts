import { createHash, randomInt } from 'node:crypto'
import { join, resolve } from 'node:path'
import { environmentLock } from '../chaos/control/guard.ts'
import type { Controller } from '../chaos/control/controller.ts'
import { keepBootKeys } from '../config/boot-keys.ts'
import { configHash } from '../config/hash.ts'
import type { FilesRead } from '../config/load.ts'
import { loadApart } from '../config/load-apart.ts'
import type { ReloadReport } from '../config/reload-report.ts'
import { isLoopback } from '../config/schema/address.ts'
import type { Config, ServerConfig } from '../config/schema/schema.ts'
import { watchFiles } from '../config/watch/watch.ts'
import type { Call } from '../mesh/call.ts'
import { type Cancel, type Clock, type Millis, nextTurn, systemClock } from '../mesh/clock.ts'
import { Experiments } from '../experiments/experiments.ts'
import { GuardedArms } from '../experiments/guarded/arms.ts'
import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import { armNames } from '../experiments/schema.ts'
import { createKeyedRandom } from '../mesh/keyed-random.ts'
import { Live } from '../mesh/live.ts'
import { during } from '../mesh/work.ts'
import { version } from '../protocol/identity.ts'
import { DynamicServers } from '../registry/dynamic-servers.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { HealthWatch } from '../registry/health/watch.ts'
import { logState, lookForIdleGlobs, warnOfCuts, warnOfNames } from '../registry/notices.ts'
import type { Server } from '../registry/server.ts'
import { Bodies, bodyRefusals, MAX_FIRST_BODY } from '../routes/bodies.ts'
import type { DirectRoute } from '../routes/mcp.ts'
import { Intents } from '../telemetry/intents.ts'
import { noteExperiments } from '../telemetry/events.ts'
import type { Log } from '../telemetry/log.ts'
import { createMetrics, type Metrics } from '../telemetry/metrics.ts'
import type { Effects } from '../telemetry/recording/format.ts'
import { Recorder } from '../telemetry/recording/recorder.ts'
import type { TraceSettings } from '../telemetry/schema.ts'
import { watchStalls } from '../telemetry/stalls.ts'
import { createTracing, type Peer, type Tracing } from '../telemetry/tracing.ts'
import { endSupervisor } from '../upstreams/stdio/groups.ts'
import { unfinishedCauses, UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import { type Agents, createAgents } from './agents.ts'
import { policiesOf } from './call-timeouts.ts'
import { createChaos } from './chaos.ts'
import { hearing, openGuarded, signOf } from './guarded/guarded.ts'
import { keepToken, type KeptToken, newControlToken, openRunFolder } from './control-token.ts'
import { compileGeneration, type GenerationParts } from './generation.ts'
import { createControlGuards, createGuards, stopListening } from './guards.ts'
import {
  addressOf,
  createControlPlane,
  createDataPlane,
  listenAt,
  registerControl,
  registerData,
} from './planes.ts'
import { createPolicyContext, openDurable } from './policy-context.ts'
import { applyConfig, prepareConfig, Reloader, withServers } from './reload.ts'

export interface GatewayOptions {
  /** The config, read already; `path` is read again at a reload. */
  readonly config: Config
  readonly path: string
  /** What it was read from, and is watched for changes; nothing is, unless given. */
  readonly files?: FilesRead
  readonly env: Readonly<Record<string, string | undefined>>
  readonly log: Log
  /** Whether a kill of faults outlives the process; unless it is false, it does. */
  readonly keepsKill?: boolean
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
  const { config: file, path, files = new Map<string, string>(), env, log } = options
  const clock = systemClock
  const { gateway } = file
  const { environment, chaosEnvironments, maxBody, controlToken } = gateway
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
  const policyContext = createPolicyContext(clock, log, metrics, durable)
  const context = hearing(policyContext, (server, sign) => guarded.noticed(server, sign))
  const { stateDir } = gateway
  // Its draws are the lengths of pauses, which gateways before the same receiver should not share.
  const random = createKeyedRandom(randomInt(2 ** 32))
  const health = new HealthWatch({ clock, random, log, metrics, stateDir, environment })
  await health.load()
  const killRecord = options.keepsKill === false ? undefined : await killRecordOf(options)
  const chaos = createChaos({
    clock,
    log,
    metrics,
    current,
    environment,
    chaosEnvironments,
    variables: env,
    killRecord,
    stateDir: gateway.stateDir,
    onLists(server, changed) {
      agents.forgetLists(server.name)
      if (changed.length === 0) return
      server.announce(changed)
      agents.tellChanged(changed)
    },
  })
  const { controller } = chaos
  const tracing = await createSpans({ clock, log, metrics, env, config: file.telemetry.traces, current })
  const forget = (names: readonly string[]) => names.forEach((arm) => context.state.forgetSet(arm))
  const experiments: Experiments = new Experiments({
    clock,
    quiet: () => live.current.config.telemetry.intents.idle,
    refresh: () => reloader.refresh(),
    forget,
    emit: noteExperiments(log),
    taken: () => arms.taken,
  })
  const arms: GuardedArms = new GuardedArms(experiments, clock, forget)
  const intents = new Intents({
    clock,
    metrics,
    onOutcome: ({ source, tenant, id }, arm, outcome) =>
      experiments.report({ source, tenant, id, arm }, outcome),
  })
  for (const limit of unfinishedCauses) metrics.repliesEnded.series({ limit })
  const replies = new UnfinishedReplies(gateway.limits.replies, (limit) =>
    metrics.repliesEnded.inc({ limit }),
  )
  const recorder = new Recorder({
    clock,
    log,
    environment,
    effectOf: (call) => live.current.mesh.effectOf(call),
    effects: () => effectsOf(live.current),
    onDropped: (count) => metrics.recordingDropped.inc({}, count),
  })
  const common = { clock, log, metrics, tracing, intents, experiments, recorder }
  const tune = (config: Config) => {
    const { telemetry, experiments } = config
    metrics.arms.follow([...armNames(experiments), ...arms.names])
    metrics.tools.limit = telemetry.metrics.maxToolsPerServer
    intents.tune(telemetry.intents)
    recorder.follow(telemetry.recording, configHash(policiesOf(config)))
  }
  tune(file)

  // The generation in force, and the agents that it serves.
  const load = { inFlight: 0, detached: 0 }
  const parts: GenerationParts = {
    ...common,
    experiments: arms,
    load,
    context,
    chaos,
    replies,
    onStale: ({ name }) => agents.forgetLists(name),
    onChanged(server, changed) {
      agents.forgetLists(server.name)
      agents.tellChanged(changed)
      warnOfNames(log, live.current.names, server)
      warnOfCuts(log, server)
    },
    onState(server) {
      logState(log, server)
      const sign = signOf(server)
      if (sign !== undefined) guarded.noticed(server.name, sign)
    },
    onProbe(server, probe, verdict) {
      health.probed(server, probe, verdict)
      const tookMs = Object.values(probe.took).reduce((sum, ms) => sum + ms, 0)
      const { state, failure } = verdict
      guarded.probed({ server: server.name, state, reason: failure?.reason, tookMs })
    },
  }
  const first = compileGeneration(withServers(file, dynamic.entries), undefined, parts)
  const live = new Live(first, clock, (calls) =>
    log.warn({ calls }, 'calls of an older config never ended: ending what was kept for them'),
  )
  const guards = createGuards(gateway, { clock, metrics, log })
  const agents = createAgents(live, clock, gateway.sessions, guards)

  // The way of the next config into force.
  const follow = (config: Config) => {
    experiments.follow(config)
    chaos.follow(config)
    health.follow(config)
    guards.limits.tune(config.gateway.limits)
    guards.tarpit.tune(config.gateway.limits.rejectionPause)
    guards.quotas.tune(config.gateway)
    replies.tune(config.gateway.limits.replies)
    for (const reading of [bodies, ownBodies]) reading.tune(config.gateway.limits.bodies)
    tune(config)
    guarded.follow()
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
    added: () => dynamic.entries,
  })

  const guarded: GuardedExperiments = await openGuarded({
    ...common,
    controller,
    arms,
    state: context.state,
    current,
    refresh: () => reloader.refresh(),
    data: () => bound?.data,
    stateDir: gateway.stateDir,
    environment,
    ownsState: durable !== undefined,
  })

  // The two planes.
  let bound: { readonly data: string; readonly control: string } | undefined
  let closing: Promise<void> | undefined
  const data = addressOf(gateway.listen)
  const allowed = () => live.current.config.gateway
  let direct: DirectRoute = () => false
  const dataPlane = createDataPlane({
    clock,
    host: data.host,
    log,
    guards,
    allowed,
    direct: (request, response) => direct(request, response),
  })
  for (const cause of bodyRefusals) metrics.bodiesRefused.series({ cause })
  const bodies = new Bodies(clock, { maxBody, maxFirst: MAX_FIRST_BODY }, gateway.limits.bodies, (cause) =>
    metrics.bodiesRefused.inc({ cause }),
  )
  direct = await registerData(dataPlane, {
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
    clock,
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
    state: context.state,
    chaos: controller,
    dynamic,
    incidents: health.incidents,
    guarded,
    reloader,
  })
  let kept: KeptToken | undefined
  const removeToken = async () => kept?.remove()
  const ends = {
    ...common,
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
  experiments.follow(live.current.config)
  chaos.follow(live.current.config)
  health.follow(live.current.config)
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
      return (closing ??= guarded.close().then(() => shutDown(ends)))
    },
  }
}

/** Where a kill outlives the process: in the state folder, or where this user's gateways are, under the config's path. */
async function killRecordOf({ config, path, env }: GatewayOptions): Promise<string | undefined> {
  const { stateDir, environment, chaosEnvironments } = config.gateway
  if (stateDir !== undefined) return join(stateDir, 'chaos-kill.json')
  // Where nothing can be armed there is nothing to keep.
  if (environmentLock({ environment, chaosEnvironments, variables: env }) !== undefined) return undefined
  const folder = await openRunFolder(env)
  const name = createHash('sha256').update(resolve(path)).digest('hex').slice(0, 16)
  return folder && join(folder, `chaos-kill-${name}.json`)
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

/** What running a tool again does, of all tools that are known. */
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

export interface SpansParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly env: Readonly<Record<string, string | undefined>>
  /** As it was at boot. */
  readonly config: TraceSettings
  /** The generation in force; not asked for before there is one. */
  readonly current: () => GatewayGeneration
}

/** Ties tracing to the gateway: what spans say of servers, and what becomes of spans. */
function createSpans({ clock, log, metrics, env, config, current }: SpansParts): Promise<Tracing> {
  return createTracing({
    clock,
    log,
    env,
    version,
    config,
    counts: {
      exported: (count) => metrics.spansExported.inc({}, count),
      dropped: (count, cause) => metrics.spansDropped.inc({ cause }, count),
    },
    isListed: (server, tool) => current().servers.get(server)?.facts(tool) !== undefined,
    peerOf: (call, replica) => peerOf(current(), call, replica),
  })
}

/** How a replica is reached, and in which version its caller's upstream session with it goes on. */
function peerOf({ servers }: GatewayGeneration, call: Call, replica = 0): Peer | undefined {
  const server = servers.get(call.server)
  if (server === undefined) return undefined
  const { config, upstreamSessions } = server
  const known = peerAddressOf(config, replica)
  const said = upstreamSessions.current(call.caller, replica)?.upstreamSession.initializeResult.value
    .protocolVersion
  const version = typeof said === 'string' ? said : undefined
  if (version === undefined) return known
  const { transport, address, port } = known
  return { transport, address, port, version }
}

/** By config: to read a URL costs as much as all else that a span says. */
const addresses = new WeakMap<ServerConfig, Map<number, Peer>>()

function peerAddressOf(config: ServerConfig, replica: number): Peer {
  const known = addresses.get(config) ?? new Map<number, Peer>()
  const found = known.get(replica) ?? readAddress(config, replica)
  known.set(replica, found)
  addresses.set(config, known)
  return found
}

function readAddress(config: ServerConfig, replica: number): Peer {
  if (config.type === 'stdio') return { transport: 'pipe' }
  const { hostname, port, protocol } = new URL(config.urls[replica] ?? config.urls[0] ?? '')
  const known = Number(port || (protocol === 'https:' ? 443 : 80))
  // URLs write IPv6 addresses in brackets; conventions do not.
  return { transport: 'tcp', address: hostname.replace(/^\[(.*)\]$/, '$1'), port: known }
}

/** As much of a plane as its end needs. */
interface EndingPlane {
  /** Takes no new connections, and says when the last one has ended. */
  stopListening(ended: () => void): void
  closeIdleConnections(): void
  close(): PromiseLike<unknown>
}

/** As much of a generation as its end needs. */
interface EndingGeneration {
  readonly config: { readonly gateway: Pick<Config['gateway'], 'drain'> }
  readonly servers: ReadonlyMap<string, Pick<Server, 'name' | 'processes' | 'close'>>
}

export interface ShutdownParts {
  readonly dataPlane: EndingPlane
  readonly controlPlane: Pick<EndingPlane, 'close'>
  readonly live: { readonly current: EndingGeneration; readonly open: readonly EndingGeneration[] }
  readonly agents: Pick<Agents, 'close'>
  /** Faults end first: what they hold back has to be let go. */
  readonly chaos: { close(): Promise<void> }
  /** Rejections that are held back end as well; replies that are on their way have the time of the drain. */
  readonly guards: { readonly tarpit: { close(): void }; readonly unread: { readonly isAny: boolean } }
  /** Once servers are ended none begins. */
  readonly reloader: Pick<Reloader, 'close'>
  /** Spans that are left are sent, as far as the collector takes them. */
  readonly tracing: { close(): Promise<void> }
  /** What was recorded of calls is written down. */
  readonly recorder: { close(): Promise<void> }
  /** Told last of the ends of calls; undefined where nothing outlives the process. */
  readonly durable: { close(): Promise<void> } | undefined
  /** What incidents there are is written down, and nobody is told any more. */
  readonly health: { close(): Promise<void> }
  /** Tasks of agents end with the process, and so do experiments. */
  readonly intents: { closeAll(): void }
  readonly experiments: { close(): void }
  readonly endStallWatch: () => void
  /** While the control plane's address is still ours. */
  readonly removeToken: () => Promise<void>
  /** Requests of agents that are under way, and calls that go on though their agents have left. */
  readonly load: { readonly inFlight: number; readonly detached: number }
  readonly clock: Clock
  readonly log: Log
}

/** How often the drain looks whether calls are still under way, in milliseconds. */
const LOOK_MS: Millis = 50

/**
 * Longest end after the drain, in milliseconds: servers that ignore the end of their input and SIGTERM take 2.5 s, what they have
 * left outside of their process groups half a second more, spans whose collector is silent 3 s. What takes longer is left to
 * the end of the process, which ends its children.
 */
const LONGEST_END_MS: Millis = 5_000

/** How long calls that were ended may take to answer their agents, in milliseconds. */
const ANSWER_GRACE_MS: Millis = 500

/** How often the end says what it waits for, in milliseconds. */
const SAY_MS: Millis = 1_000

/**
 * Ends a gateway in the order that hurts least: no new connections, calls in flight, sessions, children, the rest. After the
 * drain all that does not need one another ends at the same time: nobody's time of grace begins when another's is over.
 */
export async function shutDown(parts: ShutdownParts): Promise<void> {
  const { dataPlane, live, load, log, clock } = parts
  const { drain } = live.current.config.gateway
  // First, because connections whose replies faults hold back would be taken for idle ones.
  const faultsOver = parts.chaos.close()
  parts.guards.tarpit.close()
  const stopped = new Promise<void>((resolve) => dataPlane.stopListening(resolve))
  log.info(
    { inFlight: load.inFlight, detached: load.detached, drainMs: drain },
    'stopping: calls in flight may finish',
  )
  await faultsOver
  await drained(parts, drain)
  if (isBusy(parts)) {
    const { inFlight, detached } = load
    const repliesUnread = parts.guards.unread.isAny
    log.warn({ inFlight, detached, repliesUnread }, 'the drain is over: ending calls in flight')
  }
  dataPlane.closeIdleConnections()
  const waits = new Waits()
  const cancelSay = repeatedly(clock, () => log.info({ waitingFor: waits.names }, 'stopping: still waiting'))
  let cancelLimit: Cancel | undefined
  const limit = new Promise<'late'>((resolve) => {
    cancelLimit = clock.after(LONGEST_END_MS, () => resolve('late'))
  })
  const how = await Promise.race([endAll(parts, stopped, waits), limit]).finally(() => {
    cancelSay()
    cancelLimit?.()
  })
  const left = { waitingFor: waits.names, limitMs: LONGEST_END_MS }
  if (how === 'late') log.warn(left, 'the end takes too long: leaving what has not ended')
  log.info('stopped')
}

async function endAll(parts: ShutdownParts, stopped: Promise<void>, waits: Waits): Promise<void> {
  const { dataPlane, controlPlane, live, agents, tracing, durable, clock } = parts
  parts.reloader.close()
  // Calls end here and now, with an error that says why; their sessions are told to the servers while those still run.
  const sessions = waits.note('the sessions of agents', agents.close())
  // Those of older configs, too, whose last calls have not ended.
  const servers = new Set(live.open.flatMap((generation) => [...generation.servers.values()]))
  const upstreamSessions = [...servers].map((server) =>
    waits.note(() => nameOf(server.name, server.processes), server.close()),
  )
  // Spans and answers of the calls that were ended come first.
  const answered = drained(parts, ANSWER_GRACE_MS).then(nextTurn)
  const spans = answered.then(() => {
    parts.intents.closeAll()
    parts.experiments.close()
    return waits.note('the collector of spans', tracing.close())
  })
  const rest = Promise.all([sessions, ...upstreamSessions, parts.removeToken(), answered]).then(() =>
    Promise.all([
      waits.note('the ports', Promise.all([dataPlane.close(), controlPlane.close(), stopped])),
      waits.note('what servers have left behind', endSupervisor(clock)),
    ]),
  )
  // Nothing of it is waited for alone: what fails meanwhile fails the end, and is no rejection that nobody handles.
  await Promise.all([spans, rest])
  parts.endStallWatch()
  await waits.note('the recording', parts.recorder.close())
  await waits.note('incidents', parts.health.close())
  if (durable !== undefined) await waits.note('the store on disk', durable.close())
}

/** What the end waits for. */
class Waits {
  readonly #open = new Set<() => string>()

  get names(): string[] {
    return [...this.#open].map((name) => name())
  }

  note<T>(name: string | (() => string), ending: Promise<T>): Promise<T> {
    const entry = typeof name === 'string' ? () => name : name
    this.#open.add(entry)
    return ending.finally(() => this.#open.delete(entry))
  }
}

function nameOf(server: string, processes: number | undefined): string {
  return processes === undefined ? `server ${server}` : `server ${server} (processes: ${processes})`
}

function repeatedly(clock: Clock, say: () => void): Cancel {
  let cancel = clock.after(SAY_MS, function again() {
    say()
    cancel = clock.after(SAY_MS, again)
  })
  return () => cancel()
}

async function drained(parts: ShutdownParts, limitMs: Millis): Promise<void> {
  const { clock } = parts
  const never = new AbortController().signal
  const until = clock.now() + limitMs
  while (isBusy(parts) && clock.now() < until) await clock.sleep(LOOK_MS, never)
}

/** Whether a call is under way, or its reply. */
function isBusy({ load: { inFlight, detached }, guards }: ShutdownParts): boolean {
  return inFlight + detached > 0 || guards.unread.isAny
}
