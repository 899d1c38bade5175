import { isDeepStrictEqual } from 'node:util'
import { configHash } from '../config/hash.ts'
import type { Config, ServerConfig } from '../config/schema/schema.ts'
import { MOST_ASKED_MS } from '../mesh/pause-deadline.ts'
import { longestOf } from '../policies/deadline.ts'
import type { Call, Outcome, Service } from '../mesh/call.ts'
import { type Clock, inTurns, LONGEST_TIMER_MS, type Millis, nextTurn } from '../mesh/clock.ts'
import { compileMesh } from '../mesh/compile.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Experiments } from '../experiments/experiments.ts'
import { DEFAULT_SET, type MeshConfig } from '../mesh/settings.ts'
import { policies } from '../policies/index.ts'
import { ownInitializeParams } from '../protocol/identity.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import { connectionOf } from '../registry/connection.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { Names } from '../registry/names.ts'
import { readdress } from '../registry/references.ts'
import { Server } from '../registry/server.ts'
import { type AccessLog, createAccessLog } from '../telemetry/access-log.ts'
import type { Intents } from '../telemetry/intents.ts'
import type { TaskCalls } from '../telemetry/task-calls.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { observeAttempt, observe } from '../telemetry/observe.ts'
import type { Recorder } from '../telemetry/recording/recorder.ts'
import type { Tracing } from '../telemetry/tracing.ts'
import { createUpstreams } from '../upstreams/create.ts'
import type { HttpEngineName } from '../upstreams/http/call-sockets.ts'
import { TaskBinding } from '../upstreams/shared/task-binding.ts'
import type { UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import { policiesOf } from '../config/call-timeouts.ts'
import type { Chaos } from './chaos.ts'
import type { GatewayEvents } from './events.ts'
import type { GatewayPolicyContext } from './policy-context.ts'
import { peerAddressOf } from './spans.ts'

export interface GenerationParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** The policy context; all generations share it. */
  readonly context: GatewayPolicyContext
  readonly intents: Intents
  readonly taskCalls: TaskCalls
  /** The tracing; undefined when off. */
  readonly tracing: Tracing | undefined
  readonly recorder: Pick<Recorder, 'open' | 'begin' | 'attempt' | 'end'>
  readonly chaos: Pick<Chaos, 'layers' | 'heldBy' | 'faults' | 'clientFaults'>
  readonly experiments: Pick<Experiments, 'armsIn' | 'assignIn' | 'end' | 'unit'>
  /** Bounds the memory for incomplete replies. Shared by all generations. */
  readonly replies: UnfinishedReplies
  readonly events: Pick<GatewayEvents, 'emit'>
  /** Counts calls in progress whose agents have left. */
  readonly load: { detached: number }
  /** Hear of each ended call; asked for each generation, so that nobody listening costs nothing. */
  readonly listeners?: () => readonly CallListener[]
  /** Creates the connections to a server; default: over processes and sockets. */
  readonly upstreams?: typeof createUpstreams
  /** The engine of calls to HTTP servers; default `node`. */
  readonly http?: HttpEngineName
}

/**
 * Compiles a config without side effects. Servers with unchanged connections are kept from `previous`, with their
 * processes, sessions and catalogs. Their new settings apply once the generation is in force. Servers in `renew` are
 * always created anew. Throws when the config does not compile.
 */
export function compileGeneration(
  config: Config,
  previous: GatewayGeneration | undefined,
  parts: GenerationParts,
  renew: ReadonlySet<string> = new Set(),
): GatewayGeneration {
  const generation = assemble(config, previous, parts, renew)
  for (const build of chainsOf(generation, previous)) build()
  for (const server of generation.servers.values()) server.retain()
  return generation
}

/** Connections and chains per turn of the event loop: about a millisecond together. */
const CONNECTIONS_A_TURN = 32
const CHAINS_A_TURN = 16

/** Like `compileGeneration`, over several turns of the event loop. Rejects when the config does not compile. */
export async function compileInTurns(
  config: Config,
  previous: GatewayGeneration,
  parts: GenerationParts,
): Promise<GatewayGeneration> {
  // Warms the cache of connection hashes, the slowest part of `assemble` for new entries.
  await inTurns(Object.values(config.mcpServers), connectionOf, CONNECTIONS_A_TURN)
  const generation = assemble(config, previous, parts, new Set())
  // Retains the servers now: if `previous` ends during the next turns, it releases the servers that both generations
  // share.
  for (const server of generation.servers.values()) server.retain()
  try {
    // Begins in a fresh turn of the event loop, after the work of `assemble`.
    await nextTurn()
    await inTurns(chainsOf(generation, previous), (build) => build(), CHAINS_A_TURN)
  } catch (error) {
    generation.close()
    throw error
  }
  return generation
}

/** Creates a generation without its chains, each built at the first call. */
function assemble(
  config: Config,
  previous: GatewayGeneration | undefined,
  parts: GenerationParts,
  renew: ReadonlySet<string>,
): GatewayGeneration {
  const names = new Names(config.gateway.separator)
  const inForce = policiesOf(config)
  const servers = new Map<string, Server>()
  for (const [name, entry] of Object.entries(config.mcpServers)) {
    if (entry.disabled) continue
    const connection = connectionOf(entry)
    const old = previous?.servers.get(name)
    const isKept = old?.connection === connection && !renew.has(name)
    // A kept server keeps its names too, because the separator of names is fixed at boot.
    const server = isKept ? old : createServer({ name, entry, connection, names, tasks: old?.tasks }, parts)
    servers.set(name, server)
  }
  const held = [...servers.values()]
  const isListed = (server: string, tool: string) => servers.get(server)?.facts(tool) !== undefined
  const accessLog = heardBy(
    parts.listeners?.() ?? [],
    createAccessLog(config.telemetry.accessLog, parts),
    isListed,
  )
  const seen = observe({ ...parts, isListed, accessLog, faults: parts.chaos.faults })
  const settings: MeshConfig = { ...inForce, arms: parts.experiments.armsIn(config) }
  const state = parts.context.state.ofGeneration()
  const mesh = compileMesh({
    policies,
    config: settings,
    context: { ...parts.context, state },
    servers,
    readdress: (call, name, tool) => readdress(call, servers.get(name), tool),
    observe: seen,
    attempt: observeAttempt({ ...parts, isListed }),
    faults: parts.chaos.layers,
    transport: transportTo(servers),
  })
  const assign = parts.experiments.assignIn(config)
  return {
    config,
    hash: configHash(config),
    servers,
    names,
    mesh,
    policies: settings,
    state,
    serviceFor:
      assign === undefined
        ? (call) => {
            const { server, method, tool } = call
            return mesh.serviceFor(server, method, tool, DEFAULT_SET, parts.taskCalls.makerFor(call))
          }
        : (call) => {
            assign(call)
            const { server, method, tool, record } = call
            const set = record.arm === '' ? DEFAULT_SET : record.arm
            return mesh.serviceFor(server, method, tool, set, parts.taskCalls.makerFor(call))
          },
    clientFaults: parts.chaos.clientFaults,
    patienceMs: patienceOf(inForce),
    follow(others) {
      for (const [name, own] of servers) {
        const other = others.get(name)
        if (other === undefined || other === own) continue
        other.retain()
        held.push(other)
        servers.set(name, other)
      }
    },
    close() {
      for (const server of held) server.release()
      state.close()
    },
  }
}

/** Hears of an ended call. `isListed`: whether the server's list of tools has the tool. */
export type CallListener = (call: Call, outcome: Outcome, tookMs: Millis, isListed: boolean) => void

/** Returns an access log that also tells the listeners of each call. */
function heardBy(
  listeners: readonly CallListener[],
  log: AccessLog,
  isListed: (server: string, tool: string) => boolean,
): AccessLog {
  if (listeners.length === 0) return log
  return (call, outcome, result, tookMs, overheadMs) => {
    log(call, outcome, result, tookMs, overheadMs)
    const isKnown = call.tool !== undefined && isListed(call.server, call.tool)
    for (const hear of listeners) hear(call, outcome, tookMs, isKnown)
  }
}

/** Most policy chains built before a config is in force; further chains are built at their first call. */
const MOST_CHAINS = 5_000

/**
 * Yields the builders of chains. Building early makes a broken config fail here, instead of failing calls later.
 * Yields nothing when the policies equal the checked policies of `previous`.
 */
function* chainsOf(
  { servers, mesh, policies }: GatewayGeneration,
  previous: GatewayGeneration | undefined,
): Generator<() => void> {
  // With arms the two are never equal, because arms contain functions (`takes`).
  if (isDeepStrictEqual(policies, previous?.policies)) return
  const { arms = {} } = policies
  let count = 0
  for (const server of servers.values()) {
    const taking = Object.keys(arms).filter((arm) => arms[arm]?.takes(server.name))
    for (const { key } of server.entries('tools'))
      for (const set of [DEFAULT_SET, ...taking]) {
        if (++count > MOST_CHAINS) return
        yield () => void mesh.serviceFor(server.name, 'tools/call', key, set)
      }
  }
}

interface NewServer {
  readonly name: string
  readonly entry: ServerConfig
  readonly connection: string
  readonly names: Names
  /** The owners of tasks, kept from the replaced server with the same name. */
  readonly tasks: TaskBinding | undefined
}

function createServer(
  { name, entry: config, connection, names, tasks: known }: NewServer,
  parts: GenerationParts,
): Server {
  const { upstreams = createUpstreams, events } = parts
  const tasks = known ?? new TaskBinding(parts.clock)
  const replicas = upstreams(name, config, {
    ...parts,
    tasks,
    initializeParams: ownInitializeParams,
    refused: (limit) => parts.metrics.quotaRefused.inc({ limit }),
    withheld: () => parts.metrics.requestsWithheld.inc({ server: name }),
    faults: parts.chaos.layers.discovery,
  })
  return new Server({
    ...parts,
    name,
    config,
    connection,
    tasks,
    replicas,
    initializeParams: ownInitializeParams,
    names,
    faults: parts.chaos.layers.discovery,
    heldBy: () => parts.chaos.heldBy(name),
    probePhase: parts.context.random(name, 'first-probe'),
    onChanged: (server, changed) => void events.emit('catalogChanged', server, changed),
    onStale: (server) => void events.emit('listsChanged', server, []),
    onState: (server) => void events.emit('serverState', server),
    onProbe: (server, probe, result) => void events.emit('probed', server, probe, result),
    onLost: (reason) => parts.metrics.notificationsLost.inc({ server: name, reason }),
    onSessionEnd({ replica, upstreamSession }, lastedMs, { reason }) {
      const version = upstreamSession.initializeResult.value.protocolVersion
      if (typeof version !== 'string' || version === MODERN_VERSION) return
      const peer = { ...peerAddressOf(config, replica), version }
      // `cancelled` is the normal end of an unused session, so it is not counted as an error.
      const error = reason === 'cancelled' ? '' : reason
      parts.metrics.operations?.clientSessionOver(name, peer, lastedMs / 1_000, error)
    },
  })
}

/** Minimum time after a reload for calls of the older config to end, in milliseconds. */
const LEAST_PATIENCE_MS = 15 * 60_000

/**
 * Returns the longest possible duration of a call, in milliseconds: the longest deadline plus the longest wait for
 * input.
 */
function patienceOf({ defaults, overrides, sets }: Config['policies']): Millis {
  const deadlines = [defaults, ...overrides, ...Object.values(sets)].map(({ deadline }) => deadline)
  const longest = deadlines.map((deadline) => (deadline ? longestOf(deadline) : 0))
  return Math.min(LONGEST_TIMER_MS, Math.max(LEAST_PATIENCE_MS, Math.max(...longest) + MOST_ASKED_MS))
}

/** The innermost service: sends a call to its server. */
function transportTo(servers: ReadonlyMap<string, Server>): Service {
  return (call: Call): Promise<Outcome> => {
    const server = servers.get(call.server)
    if (server !== undefined) return server.send(call)
    return Promise.resolve({
      kind: 'failed',
      error: gatewayError('upstream_unavailable', 'there is no such server'),
    })
  }
}
