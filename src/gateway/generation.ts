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
import { createAccessLog } from '../telemetry/access-log.ts'
import type { Intents } from '../telemetry/intents.ts'
import type { TaskCalls } from '../telemetry/task-calls.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { observeAttempt, observe } from '../telemetry/observe.ts'
import type { Recorder } from '../telemetry/recording/recorder.ts'
import type { Tracing } from '../telemetry/tracing.ts'
import { createUpstreams } from '../upstreams/create.ts'
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
  /** Outlives all generations. */
  readonly context: GatewayPolicyContext
  readonly intents: Intents
  readonly taskCalls: TaskCalls
  /** Undefined: tracing is off. */
  readonly tracing: Tracing | undefined
  readonly recorder: Pick<Recorder, 'open' | 'begin' | 'attempt' | 'end'>
  readonly chaos: Pick<Chaos, 'layers' | 'heldBy' | 'faults' | 'clientFaults'>
  readonly experiments: Pick<Experiments, 'armsIn' | 'assignIn' | 'end' | 'unit'>
  /** Bounds the memory for incomplete replies. Outlives all generations. */
  readonly replies: UnfinishedReplies
  readonly events: Pick<GatewayEvents, 'emit'>
  /** Counts what goes on although no agent waits for it. */
  readonly load: { detached: number }
  /** Makes the ways to a server: over processes and sockets unless given. */
  readonly upstreams?: typeof createUpstreams
}

/**
 * Compiles a config, and changes nothing. Servers whose connections are the same are taken over from `previous`, with
 * their processes, sessions and all that is known of them; they follow their new entry once it is in force. Those in
 * `renew` are made anew all the same.
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

/** How much is done in one turn, of each kind: together it takes about a millisecond. */
const CONNECTIONS_A_TURN = 32
const CHAINS_A_TURN = 16

/** The same over several turns of the event loop. Rejects when the config does not compile. */
export async function compileInTurns(
  config: Config,
  previous: GatewayGeneration,
  parts: GenerationParts,
): Promise<GatewayGeneration> {
  // They are remembered: of entries that are new they are most of what assembling takes.
  await inTurns(Object.values(config.mcpServers), connectionOf, CONNECTIONS_A_TURN)
  const generation = assemble(config, previous, parts, new Set())
  // From now on, as what it shares with `previous` may be let go of by that meanwhile.
  for (const server of generation.servers.values()) server.retain()
  try {
    // Afterwards the caller puts the generation into force in one go: a turn by itself.
    await nextTurn()
    await inTurns(chainsOf(generation, previous), (build) => build(), CHAINS_A_TURN)
  } catch (error) {
    generation.close()
    throw error
  }
  return generation
}

/** All of a generation but the chains of calls, which are built when they are needed first. */
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
    // The names that a kept server was made with still hold: the separator is fixed at boot.
    const server = isKept ? old : createServer({ name, entry, connection, names, tasks: old?.tasks }, parts)
    servers.set(name, server)
  }
  const held = [...servers.values()]
  const isListed = (server: string, tool: string) => servers.get(server)?.facts(tool) !== undefined
  const accessLog = createAccessLog(config.telemetry.accessLog, parts)
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

/** Most tools whose chains are built before a config is in force; those of others are when they are called first. */
const MOST_CHAINS = 5_000

/**
 * Yields the builders of chains: an error in a chain keeps a config from being put into force, instead of failing calls later.
 * Policies equal to the policies of `previous` are known to be right, so their chains are built on demand.
 */
function* chainsOf(
  { servers, mesh, policies }: GatewayGeneration,
  previous: GatewayGeneration | undefined,
): Generator<() => void> {
  // Never so where there are arms: it is functions that say of which servers they take calls.
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
  /** The owners of its tasks, if it takes the place of another server of the name. */
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
      // Upstream sessions that nobody needs any more are cancelled.
      const error = reason === 'cancelled' ? '' : reason
      parts.metrics.operations?.clientSessionOver(name, peer, lastedMs / 1_000, error)
    },
  })
}

/** Least time that calls of an older config are given to end, in milliseconds. */
const LEAST_PATIENCE_MS = 15 * 60_000

/** How long a call may take by the deadlines of a config, with the time for which its agent may be asked, in milliseconds. */
function patienceOf({ defaults, overrides, sets }: Config['policies']): Millis {
  const deadlines = [defaults, ...overrides, ...Object.values(sets)].map(({ deadline }) => deadline)
  const longest = deadlines.map((deadline) => (deadline ? longestOf(deadline) : 0))
  return Math.min(LONGEST_TIMER_MS, Math.max(LEAST_PATIENCE_MS, Math.max(...longest) + MOST_ASKED_MS))
}

/** The innermost service: a call goes to its server. */
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
