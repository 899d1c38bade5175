import { Controller } from '../chaos/control/controller.ts'
import { type FaultEnvironment, type RawReply, serverAddress } from '../chaos/fault.ts'
import { faults } from '../chaos/faults/index.ts'
import { injector } from '../chaos/firing/engine.ts'
import { methodsOf, type PlanTargets } from '../chaos/plan/checks.ts'
import type { Fault } from '../chaos/plan/common.ts'
import type { Config, ServerConfig } from '../config/schema/schema.ts'
import type { Call, Layer, Outcome, Service } from '../mesh/call.ts'
import { type Clock, sleepOn } from '../mesh/clock.ts'
import { gatewayError, type Reason } from '../mesh/errors.ts'
import { faultFates, withInjected } from '../mesh/injected.ts'
import { matcher } from '../mesh/match.ts'
import type { Live } from '../mesh/live.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { kinds, type ListKind, listKinds } from '../protocol/lists.ts'
import { readdress } from '../registry/references.ts'
import type { Server } from '../registry/server.ts'
import { noteChaos } from '../telemetry/events.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { FaultAccount } from '../telemetry/observe.ts'
import { noteDiscoveryFaults, noteFaults } from '../telemetry/observe-policies.ts'
import type { GatewayEvents } from './events.ts'
import { failToConnect } from '../upstreams/http/failing-connection.ts'
import { ReplyHeaders, readReply } from '../upstreams/http/http-status.ts'
import { transportError } from '../upstreams/http/http-reply.ts'
import { concealing } from '../upstreams/server-words.ts'
import { launchError } from '../upstreams/stdio/launch.ts'

/** The chaos mesh, as the rest of the gateway knows it. */
export interface Chaos {
  readonly controller: Controller
  readonly layers: {
    readonly client: Layer
    readonly upstream: Layer
    /** As `upstream`, for what the gateway asks servers by itself: nobody else counts the faults of that. */
    readonly discovery: Layer
  }
  /**
   * The faults that shake agents with answers which the gateway gives by itself, such as lists over all servers;
   * undefined while none is armed for such requests. They say themselves what became of them.
   */
  readonly clientFaults: (server: string, method: string) => Layer | undefined
  /** The names of the faults that hold a handshake with a server now. */
  readonly heldBy: (server: string) => readonly string[]
  readonly faults: FaultAccount
  /** Goes by the config that is in force now, at boot and after each reload: its plan, and the servers that are protected. */
  readonly follow: (config: Config) => void
}

export interface ChaosParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** The generation in force; not asked for before there is one. */
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  /** As they were at boot. */
  readonly environment: string | undefined
  readonly chaosEnvironments: readonly string[]
  readonly variables: Readonly<Record<string, string | undefined>>
  /** The file in which a kill outlives the process; undefined: it does not. */
  readonly killRecord: string | undefined
  /** `gateway.stateDir`. */
  readonly stateDir: string | undefined
  readonly events: Pick<GatewayEvents, 'emit'>
}

/** Ties the chaos mesh to the gateway. It starts disarmed. */
export function createChaos(parts: ChaosParts): Chaos {
  const {
    clock,
    log,
    metrics,
    live,
    environment,
    chaosEnvironments,
    variables,
    killRecord,
    stateDir,
    events,
  } = parts
  const note = noteChaos(metrics, log)
  const isProtected = (server: string) => live.current.servers.get(server)?.protected === true
  let spared = new Set<string>()
  const misled = new Set<string>()
  const controller = new Controller({
    clock: harmless(clock, log),
    environment,
    chaosEnvironments,
    variables,
    killRecord,
    stateDir,
    onDropped: (count) => metrics.chaosJournalDropped.inc({}, count),
    faultEnvironment: faultEnvironmentOf(live, clock),
    effectOf: (call) => live.current.mesh.effectOf(call),
    isProtected,
    awaitsList(name) {
      const server = live.current.servers.get(name)
      return server?.config.trusted === true && server.catalog.fetchedAt === undefined
    },
    emit: note,
    onTurned(turned) {
      for (const server of live.current.servers.values()) {
        if (isHitBy(turned.filter(atServers), server.name, LISTEN))
          // One that was refused for good is asked for again, and one that is open when a fault is armed is hit from now on.
          server.upstreamSessions.relisten(controller.engine.aims('upstream', server.name, LISTEN))
        // One that has just become so may show what faults have made of its lists.
        if (server.protected && spared.has(server.name)) continue
        if (!discovering.some((method) => isHitBy(turned, server.name, method))) continue
        const isOfLists = ({ type }: Fault) => faults[type]?.family === 'registry'
        // Also where a pause after failures, which a fault had made, has a while to go.
        if (turned.some((fault) => atServers(fault) || isOfLists(fault))) {
          // A session goes by its handshake, and outlives the fault.
          const isOfHandshakes = [...opening].some((method) =>
            isHitBy(turned.filter(atServers), server.name, method),
          )
          server.refresh({ greetsAnew: isOfHandshakes && misled.delete(server.name) })
        }
        // An agent that is told of a change asks again. A fault on a connection changes no list.
        const changed = listsHitBy(turned.filter(isOfLists), server.name)
        events.emit('listsChanged', server, changed)
        if (changed.length > 0) server.announce(changed)
      }
    },
  })
  const client = injector('client', controller.engine)
  const asking = injector('upstream', controller.engine, 'discovery')
  const handshakes = new Set<Call>()
  return {
    controller,
    layers: {
      client,
      upstream: injector('upstream', controller.engine),
      discovery: (next) => counted(asking(next), { controller, metrics, handshakes, misled }),
    },
    heldBy(server) {
      const open = [...handshakes].filter((call) => call.server === server)
      return [...new Set(open.flatMap((call) => controller.engine.culprits(call, undefined)))]
    },
    clientFaults(server, method) {
      if (!controller.engine.aims('client', server, method)) return undefined
      return (next) => {
        const faulted = client(next)
        const ended = (call: Call, outcome: Outcome) => {
          faultFates.note(call.record, controller.engine.account(call, outcome))
          noteFaults(metrics, call.record)
          return outcome
        }
        return (call) => faulted(call).then((outcome) => ended(call, outcome))
      }
    },
    faults: controller.engine,
    follow(config) {
      const before = spared
      const names = Object.keys(config.mcpServers).filter(isProtected)
      const fresh = names.filter((name) => !before.has(name))
      spared = new Set(names.filter((name) => before.has(name)))
      if (fresh.length > 0) controller.spare(fresh)
      spared = new Set(names)
      controller.follow(config.chaos)
    },
  }
}

/** The lists of a server that such faults can do something to. */
function listsHitBy(turned: readonly Fault[], server: string): ListKind[] {
  return listKinds.filter((kind) => isHitBy(turned, server, kinds[kind].method))
}

/** By which the streams for what belongs to no call are asked for, as faults know it. */
const LISTEN = 'subscriptions/listen'

const atServers = ({ side }: Fault): boolean => side === 'upstream'

function isHitBy(turned: readonly Fault[], server: string, method: string): boolean {
  return turned.some(
    ({ type, match = {} }) =>
      methodsOf(faults[type]).includes(method) && matcher(match)(server, method, undefined),
  )
}

/** The requests that begin a session with a server. */
const opening: ReadonlySet<string> = new Set(['initialize', 'server/discover'])

/** The methods that the gateway calls by itself, to learn what a server is and what the server offers. */
const discovering: readonly string[] = [...opening, 'ping', ...listKinds.map((kind) => kinds[kind].method)]

interface Counting {
  readonly controller: Controller
  readonly metrics: Metrics
  /** Handshakes under way. */
  readonly handshakes: Set<Call>
  /** The servers whose handshake with the gateway was changed by a fault: the session may still go by the changed answer. */
  readonly misled: Set<string>
}

/** Accounts for the faults of questions that are no agent's, apart from those of agents. Their errors name the faults that made them. */
function counted(ask: Service, { controller: { engine }, metrics, handshakes, misled }: Counting): Service {
  return (call) => {
    if (opening.has(call.method)) handshakes.add(call)
    const over = () => handshakes.delete(call)
    return ask(call)
      .then((outcome) => {
        const culprits = engine.culprits(call, outcome)
        if (opening.has(call.method) && outcome.kind === 'answered' && culprits.length > 0)
          misled.add(call.server)
        engine.account(call, outcome)
        noteDiscoveryFaults(metrics, call.record)
        return withInjected(outcome, culprits)
      })
      .finally(over)
  }
}

/** A clock whose tasks cannot end the process: what a fault does later has no call to fail. */
function harmless(clock: Clock, log: Log): Clock {
  const after: Clock['after'] = (ms, task) =>
    clock.after(ms, () => {
      try {
        task()
      } catch (cause) {
        log.error({ err: cause }, 'chaos: a fault met a defect of ours')
      }
    })
  const { isReal, now, wall } = clock
  return { isReal, now, wall, after, sleep: (ms, signal) => sleepOn({ after }, ms, signal) }
}

/** The effects that faults may have outside of the call they hit, on the servers of the generation in force. */
function faultEnvironmentOf(live: ChaosParts['live'], clock: Clock): FaultEnvironment {
  const find = (server: string) => live.current.servers.get(server)
  return {
    kindOf({ server, caller, replica }) {
      const found = find(server)
      if (found === undefined) return undefined
      const urls = urlsOf(found, replica)
      return {
        transport: found.transportAt(replica),
        era: found.eraFor(caller, replica),
        ...(urls.length > 0 && { address: serverAddress(urls) }),
      }
    },
    outputSchemaOf: (server, tool) => find(server)?.facts(tool)?.outputSchema,
    signal: (server, signal) => find(server)?.signal(signal) === true,
    crash: (server, loop) => find(server)?.crash(loop),
    write: (server, bytes, over) => find(server)?.write(bytes, over),
    loseSession(server, caller) {
      const upstreamSessions = find(server)?.upstreamSessions.all(caller) ?? []
      return upstreamSessions
        .map((upstreamSession) => upstreamSession.loseSession?.() === true)
        .includes(true)
    },
    tell(server, message) {
      // An answer belongs to a call: outside of one there is nobody to give it to.
      if (!('method' in message.value)) return
      for (const caller of find(server)?.upstreamSessions.callers() ?? []) caller.receive(server, message)
    },
    refresh: (server) => find(server)?.refresh(),
    beginAttempt: (call, sent) => find(call.server)?.faultedAttempts.begin(call, sent) === true,
    suspect: (call, error) => find(call.server)?.faultedAttempts.failed(call, error),
    unreachable(call) {
      const config = find(call.server)?.config
      if (config?.type === 'stdio') return launchError(config, { code: 'EAGAIN', message: '' })
      return transportError({ code: 'ECONNREFUSED', message: '', name: 'Error' }, false)
    },
    failToConnect(call, failure) {
      const found = find(call.server)
      if (found === undefined || found.config.type === 'stdio') return undefined
      const url = urlsOf(found, call.replica).find((one) => {
        const { isNamed, isSecure } = serverAddress([one])
        return failure.of === 'name' ? isNamed : isSecure
      })
      return url === undefined ? undefined : failToConnect(found.config, url, failure)
    },
    sendTo(call, server) {
      const other = find(server)
      if (other?.protected === true) return undefined
      const readdressed = call.tool === undefined ? undefined : readdress(call, other, call.tool)
      return readdressed && other?.send(readdressed)
    },
    read(call, raw) {
      const limit = find(call.server)?.config.maxReply
      return limit !== undefined && Buffer.byteLength(raw.body) > limit
        ? failed('reply_too_large', `the reply is larger than ${limit} bytes`)
        : read(call, raw, clock.wall(), find(call.server)?.config)
    },
  }
}

/** The URLs that a call may go to: that of its replica, where it has one. */
function urlsOf({ config }: Server, replica: number | undefined): readonly string[] {
  if (config.type === 'stdio') return []
  return replica === undefined ? config.urls : config.urls.slice(replica, replica + 1)
}

function read(
  call: Call,
  { status, headers, body }: RawReply,
  wallMs: number,
  config: ServerConfig | undefined,
): Outcome {
  const raw = Object.entries(headers).flatMap(([name, value]) => [Buffer.from(name), Buffer.from(value)])
  // As much is taken out of it as of words of the server itself.
  const conceal = config === undefined ? {} : { conceal: concealing(config) }
  const context = { hasSession: false, wallMs, ...conceal }
  const reading = readReply(call.id, status, new ReplyHeaders(raw), body, context)
  return reading.kind === 'suspected_loss' ? reading.otherwise : reading
}

const failed = (reason: Reason, message: string): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, message, { sent: true }),
})

/** The servers that faults may aim at, as the checks of plans know them. */
export const serverTargets = (servers: GatewayGeneration['servers']): PlanTargets['servers'] =>
  [...servers.values()].map((server) => ({
    name: server.name,
    protected: server.protected,
    // The gateway itself calls the tool of a health check, whether agents see it or not.
    tools: [...server.entries('tools').map(({ key }) => key), ...server.excluded],
    kind: {
      transport: server.transportAt(),
      era: server.onlyEra,
      ...(server.config.type !== 'stdio' && { address: serverAddress(server.config.urls) }),
    },
  }))
