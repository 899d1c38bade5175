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

export interface Chaos {
  readonly controller: Controller
  readonly layers: {
    readonly client: Layer
    readonly upstream: Layer
    /** Like `upstream`, for the gateway's own requests to servers. Also counts the faults of these requests. */
    readonly discovery: Layer
  }
  /**
   * Returns client-side faults for the gateway's own answers, such as lists over all servers. The layer records the
   * fates of its faults. Undefined while no fault is armed for the request.
   */
  readonly clientFaults: (server: string, method: string) => Layer | undefined
  /** Returns the names of the faults that delay a handshake with a server now. */
  readonly heldBy: (server: string) => readonly string[]
  readonly faults: FaultAccount
  /** Applies the config's plan and protected servers, at boot and after each reload. */
  readonly follow: (config: Config) => void
}

export interface ChaosParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** The generation in force. Not read before the first generation is in force. */
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  /** The environment and the next two values do not change after the start. */
  readonly environment: string | undefined
  readonly chaosEnvironments: readonly string[]
  readonly variables: Readonly<Record<string, string | undefined>>
  /** The file that stores a kill across restarts; undefined: a kill ends with the process. */
  readonly killRecord: string | undefined
  /** `gateway.stateDir`. */
  readonly stateDir: string | undefined
  readonly events: Pick<GatewayEvents, 'emit'>
}

/** Connects the chaos mesh to the gateway. The mesh starts disarmed. */
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
          // Opens a refused stream again. With a fault armed, also replaces an open stream, so that the fault hits the
          // new stream.
          server.upstreamSessions.relisten(controller.engine.aims('upstream', server.name, LISTEN))
        // Skips only servers that were protected before. The lists of a newly protected server may still be changed by
        // faults.
        if (server.protected && spared.has(server.name)) continue
        if (!discovering.some((method) => isHitBy(turned, server.name, method))) continue
        const isOfLists = ({ type }: Fault) => faults[type]?.family === 'registry'
        // Also ends the pause after failed discoveries, because a fault may have caused the failures.
        if (turned.some((fault) => atServers(fault) || isOfLists(fault))) {
          // Renews the upstream session after a fault of the handshake, because the session keeps the handshake's
          // result.
          const isOfHandshakes = [...opening].some((method) =>
            isHitBy(turned.filter(atServers), server.name, method),
          )
          server.refresh({ greetsAnew: isOfHandshakes && misled.delete(server.name) })
        }
        // Tells agents of changed lists, so that they fetch the lists again. A connection fault changes no list.
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

/** Returns the lists of a server that these faults can change. */
function listsHitBy(turned: readonly Fault[], server: string): ListKind[] {
  return listKinds.filter((kind) => isHitBy(turned, server, kinds[kind].method))
}

/** The name in fault plans for requests that open a stream for messages outside of calls. */
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

/** The methods of discovery: the gateway's own requests to learn about a server and its lists. */
const discovering: readonly string[] = [...opening, 'ping', ...listKinds.map((kind) => kinds[kind].method)]

interface Counting {
  readonly controller: Controller
  readonly metrics: Metrics
  readonly handshakes: Set<Call>
  /** Servers with a handshake answer that a fault changed; the upstream session may still use this answer. */
  readonly misled: Set<string>
}

/** Counts faults of discovery separately from faults of agents' calls, and names the faults in errors. */
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

/**
 * Returns a clock that logs errors of its tasks. Faults run delayed effects on this clock, and an error there must not
 * end the process.
 */
function harmless(clock: Clock, log: Log): Clock {
  const after: Clock['after'] = (ms, task) =>
    clock.after(ms, () => {
      try {
        task()
      } catch (cause) {
        log.error({ err: cause }, 'chaos: internal error in a fault (a bug in Breakwater)')
      }
    })
  const { isReal, now, wall } = clock
  return { isReal, now, wall, after, sleep: (ms, signal) => sleepOn({ after }, ms, signal) }
}

/** Returns the means by which faults affect the servers in force outside of a call. */
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
      // Drops an answer, because no call waits for it.
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

/** Returns the URLs that a call may use: only the replica's URL if `replica` is set, else all. */
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
  // Removes secrets, as in a real reply.
  const conceal = config === undefined ? {} : { conceal: concealing(config) }
  const context = { hasSession: false, wallMs, ...conceal }
  const reading = readReply(call.id, status, new ReplyHeaders(raw), body, context)
  return reading.kind === 'suspected_loss' ? reading.otherwise : reading
}

const failed = (reason: Reason, message: string): Outcome => ({
  kind: 'failed',
  error: gatewayError(reason, message, { sent: true }),
})

/** Returns possible targets of faults, for the checks of plans. */
export const serverTargets = (servers: GatewayGeneration['servers']): PlanTargets['servers'] =>
  [...servers.values()].map((server) => ({
    name: server.name,
    protected: server.protected,
    // Includes tools hidden from agents, because a health check may call such a tool.
    tools: [...server.entries('tools').map(({ key }) => key), ...server.excluded],
    kind: {
      transport: server.transportAt(),
      era: server.onlyEra,
      ...(server.config.type !== 'stdio' && { address: serverAddress(server.config.urls) }),
    },
  }))
