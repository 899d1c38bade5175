import { lookup } from 'node:dns/promises'
import type { IncomingHttpHeaders, RequestListener } from 'node:http'
import { type AddressInfo, createServer, type Server } from 'node:net'
import Fastify from 'fastify'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { Controller } from '../chaos/control/controller.ts'
import type { Experiments } from '../experiments/experiments.ts'
import { armNames } from '../experiments/schema.ts'
import type { GameDays } from '../gamedays/gamedays.ts'
import type { GuardedExperiments } from '../experiments/guarded/guarded.ts'
import type { PlanTargets } from '../chaos/plan/checks.ts'
import { type Address, parseAddress } from '../units/address.ts'
import { AggregateEndpoint } from '../downstream/endpoints.ts'
import type { Guards } from '../downstream/limits/limits.ts'
import type { Sessions } from '../downstream/legacy/sessions.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import { MAX_DEPTH } from '../protocol/json-check.ts'
import { isDeeperThan } from '../protocol/json-span.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR } from '../protocol/jsonrpc.ts'
import type { DynamicServers } from '../registry/dynamic-servers.ts'
import type { Incidents } from '../registry/health/incidents.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { registerAdminChaos } from '../routes/admin-chaos.ts'
import { registerAdminIncidents } from '../routes/admin-incidents.ts'
import { registerAdminApprovals } from '../routes/admin-approvals.ts'
import { registerAdminGameDays } from '../routes/admin-gamedays.ts'
import { registerAdminGuarded } from '../routes/admin-guarded.ts'
import { registerAdminRuns } from '../routes/admin-runs.ts'
import { registerAdminExperiments } from '../routes/admin-experiments.ts'
import {
  registerAdmin,
  registerAdminMesh,
  registerAdminOutcomes,
  registerAdminServers,
} from '../routes/admin.ts'
import { type Bodies, BodyRefusal, NOT_JSON, refuseBody } from '../downstream/http/bodies.ts'
import { registerChaos } from '../routes/chaos.ts'
import { registerHealth } from '../routes/health.ts'
import { type DirectRoute, type DirectRoutes, registerMcp } from '../routes/mcp.ts'
import { registerMetrics } from '../routes/metrics.ts'
import { registerPassthrough } from '../routes/passthrough.ts'
import { controlDirectory, dataDirectory, registerRoot } from '../routes/root.ts'
import type { Intents } from '../telemetry/intents.ts'
import type { Log } from '../telemetry/log.ts'
import type { KnownPlans } from '../telemetry/collect-plans.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { printableJson } from '../telemetry/printable.ts'
import type { UnfinishedReplies } from '../upstreams/unfinished-replies.ts'
import type { Agents } from './agents.ts'
import type { AgentRuns } from '../approval/agent-runs.ts'
import { envelopeTargetsOf } from './control-mcp/targets.ts'
import {
  shareWith,
  allowsHost,
  allowsOrigin,
  type ControlAccess,
  createBoundedServer,
  type ReaderOf,
  demandToken,
  hostGuard,
  isCrossOrigin,
  isOfAnotherSite,
  type ServerGuards,
} from '../downstream/http/server.ts'
import type { UsualRoute } from '../downstream/http/engine/core.ts'
import { HttpEngine } from '../downstream/http/engine/engine.ts'
import type { Config } from '../config/schema/schema.ts'
import { gameDayPlanSchema } from './gamedays.ts'
import type { GatewayRunIndex } from './guarded/run-index.ts'
import { experimentSpec } from './guarded/spec.ts'
import { serverTargets } from './chaos.ts'
import type { Reloader } from './reload.ts'

export interface PlaneParts {
  readonly clock: Clock
  /** The bound host, without port. */
  readonly host: string
  readonly log: Log
  readonly guards: ServerGuards
}

/**
 * Keep-alive time of idle connections, in milliseconds: longer than the idle time of clients' pools, so clients close
 * connections first.
 */
const KEEP_ALIVE_MS = 75_000

/** Timeout for the head of a request, in milliseconds, counted from before its first byte. */
const HEADERS_MS = 60_000

/** Timeout for a whole request that `Bodies` does not read, in milliseconds. */
const REQUEST_MS = 300_000

/** Returns the body of an error reply; `inJsonRpc` is the error's own JSON-RPC text, if given. */
type ErrorBody = (status: number, message: string, inJsonRpc?: string) => string

/** The error body for agents: JSON-RPC. */
export const jsonRpcError: ErrorBody = (status, message, inJsonRpc) =>
  inJsonRpc ?? errorText(null, status === 400 ? PARSE_ERROR : INVALID_REQUEST, message)

/** The error body for operators: plain JSON. */
const plainError: ErrorBody = (_, message) => JSON.stringify({ error: message })

interface PlaneRoutes {
  /** Handles requests without Fastify. */
  readonly direct?: DirectRoute
  /** Handles requests without Node's HTTP server; undefined: the server reads all requests. */
  readonly usual?: UsualRoute | undefined
}

/** Creates the server of a plane. `errorBody` makes the body of error replies. */
export function createPlane(
  { clock, log, guards }: PlaneParts,
  errorBody: ErrorBody,
  { direct = () => false, usual }: PlaneRoutes = {},
): FastifyInstance {
  const app = Fastify({
    logger: false,
    serverFactory(listener) {
      const answer: RequestListener = (request, response) => {
        if (!direct(request, response)) listener(request, response)
      }
      const readerOf: ReaderOf | undefined =
        usual &&
        ((server, handOver) => new HttpEngine(server, handOver, { clock, route: usual, ...guards }).begin)
      const server = createBoundedServer(answer, guards, readerOf)
      server.keepAliveTimeout = KEEP_ALIVE_MS
      server.headersTimeout = HEADERS_MS
      server.requestTimeout = REQUEST_MS
      return server
    },
    forceCloseConnections: true,
    // Answers a request whose target cannot be read, because no route and no hook gets such a request.
    frameworkErrors(error, _, reply: FastifyReply) {
      const { statusCode: status = 400 } = error
      void reply
        .code(status)
        .type('application/json')
        .send(errorBody(status, 'the target of the request cannot be read'))
    },
    routerOptions: { maxParamLength: 128, ignoreTrailingSlash: true },
  })
  // Removes the parsers, because each route reads bodies itself. Bodies for unknown routes are not read.
  app.removeAllContentTypeParsers()
  app.setErrorHandler((error: Error & { statusCode?: number }, _, reply) => {
    if (error instanceof BodyRefusal) {
      const { statusCode, message, text } = error
      reply.hijack()
      return refuseBody(reply.raw, error, clock, errorBody(statusCode, message, text))
    }
    const status = error.statusCode ?? 500
    if (status >= 500)
      log.error({ err: error }, 'internal error while handling a request (a bug in Breakwater)')
    const message = status >= 500 ? 'internal error' : status === 415 ? NOT_JSON : error.message
    void reply.code(status).type('application/json').send(errorBody(status, message))
  })
  app.setNotFoundHandler((request, reply) => {
    void reply
      .code(404)
      .send({ error: `no route ${request.method} ${request.url.split('?')[0]?.slice(0, 200)}` })
  })
  return app
}

/** Creates the plane for agents. A reload may change its allowed hosts and origins. */
export async function createDataPlane(parts: PlaneParts & DataParts): Promise<FastifyInstance> {
  const { live } = parts
  let routes: DirectRoutes | undefined = undefined
  let names: readonly string[] | undefined
  let isAllowed = hostGuard(parts.host, [])

  /** Returns the reason for refusing a request by its `Host` and `Origin`; undefined when allowed. */
  function refusalOf(headers: IncomingHttpHeaders): string | undefined {
    const { allowedHosts, allowedOrigins } = live.current.config.gateway
    if (allowedHosts !== names) isAllowed = hostGuard(parts.host, (names = allowedHosts))
    const { host, origin } = headers
    if (!isAllowed(host)) return 'Host not allowed; see gateway.allowedHosts'
    if (!allowsOrigin(origin, allowedOrigins)) return 'Origin not allowed; see gateway.allowedOrigins'
    return origin === undefined && isOfAnotherSite(headers)
      ? 'cross-site browser request without an Origin header'
      : undefined
  }

  const isLetIn = (headers: IncomingHttpHeaders) =>
    headers.origin === undefined && refusalOf(headers) === undefined

  const usual: UsualRoute = {
    largestWhole: parts.bodies.largestWhole,
    targetOf: (request) => routes?.usual.targetOf(request),
    mayTake: (target, headers) => isLetIn(headers) && routes?.usual.mayTake(target, headers) === true,
    take: (...post) => routes?.usual.take(...post),
    takeParts: (...post) => routes?.usual.takeParts(...post),
  }
  const app = createPlane(parts, jsonRpcError, {
    direct: (request, response) => isLetIn(request.headers) && routes?.direct(request, response) === true,
    usual: parts.http === 'own' ? usual : undefined,
  })
  app.addHook('onRequest', (request, reply, done) => {
    const { origin } = request.headers
    const refused = refusalOf(request.headers)
    if (refused === undefined) {
      // A server behind `/proxy` handles CORS itself.
      const isShared = origin !== undefined && !request.url.startsWith('/proxy/')
      if (isShared && shareWith(origin, request.raw, reply.raw)) return void reply.hijack()
      return done()
    }
    void reply
      .code(403)
      .type('application/json')
      .send(errorText(null, INVALID_REQUEST, `Forbidden: ${refused}`))
  })
  routes = await registerData(app, parts)
  return app
}

/** Creates the plane for operators. Refuses cross-origin pages. Changes need the token, except for stopping faults. */
export function createControlPlane(
  parts: PlaneParts & {
    readonly access: ControlAccess
    readonly bodies: Bodies
  },
): FastifyInstance {
  const app = createPlane(parts, plainError)
  // Escapes control characters, because replies quote servers and agents, and operators read replies on terminals.
  app.setReplySerializer((payload) => printableJson(JSON.stringify(payload)))
  const json = app.getDefaultJsonParser('error', 'error')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    parts.bodies.read(payload, (error, text = '') => {
      if (error !== null) return done(error, undefined)
      // Accepts an empty body, because many clients send a content type without a body.
      if (text === '') return done(null, undefined)
      // Refuses deep nesting, because code walking the body may recurse.
      if (isDeeperThan(MAX_DEPTH, text))
        return done(
          new BodyRefusal(400, `Bad Request: objects and arrays are nested more than ${MAX_DEPTH} deep`),
        )
      void json(request, text, done)
    })
  })
  app.addHook('onRequest', ({ headers }, reply, done) => {
    if (!isCrossOrigin(headers) && allowsHost(headers.host, parts.host, [])) return done()
    void reply.code(403).send({ error: 'forbidden: another origin or host' })
  })
  demandToken(app, parts.access)
  return app
}

interface DataParts {
  readonly live: Live<GatewayGeneration>
  readonly agents: Agents
  readonly guards: Guards
  readonly clock: Clock
  readonly log: Log
  readonly bodies: Bodies
  /** The reader of agents' requests: our own engine for the usual ones, or Node's server for all. */
  readonly http: Config['gateway']['http']
  /** Calls in flight; the drain waits for 0. */
  readonly load: { inFlight: number }
  /** True once the shutdown has begun. */
  readonly isStopping: () => boolean
}

/** Registers the routes of the data plane. Resolves to the routes for requests handled without Fastify. */
async function registerData(app: FastifyInstance, parts: DataParts): Promise<DirectRoutes | undefined> {
  const { live, agents, guards, clock, log, bodies, load, isStopping } = parts
  const { legacy, modern } = agents
  const { quotas } = guards
  await app.register(async (scope) => registerPassthrough(scope, { live, clock, log, load, quotas }))
  let routes: DirectRoutes | undefined
  await app.register((scope, _, done) => {
    const aggregate = new AggregateEndpoint(clock)
    routes = registerMcp(scope, { live, aggregate, legacy, modern, quotas, clock, log, bodies, load })
    done()
  })
  registerHealth(app, { live, isStopping })
  registerRoot(app, dataDirectory)
  return routes
}

export interface ControlParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly metrics: Metrics
  readonly intents: Intents
  readonly sessions: Sessions
  readonly guards: Guards
  /** The limits on request bodies of the data plane, for metrics. */
  readonly bodies: Bodies
  readonly replies: UnfinishedReplies
  readonly state: StateStore
  readonly chaos: Controller
  readonly dynamic: DynamicServers
  readonly incidents: Incidents
  readonly experiments: Experiments
  readonly guarded: GuardedExperiments
  readonly gameDays: GameDays
  readonly plans: KnownPlans
  readonly runIndex: GatewayRunIndex | undefined
  /** The runs of agents; undefined without the control MCP server. */
  readonly agentRuns: AgentRuns | undefined
  /** Names of the agents that have a token of the control MCP server. */
  readonly agentNames: readonly string[]
  readonly reloader: Reloader
}

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
    experiments,
    incidents,
    guarded,
    gameDays,
    plans,
    runIndex,
    agentRuns,
    agentNames,
    reloader,
  } = parts
  const targets = () => targetsOf(live.current)
  registerRoot(app, controlDirectory)
  registerMetrics(app, {
    live,
    clock,
    metrics,
    sessions,
    guards,
    bodies,
    replies,
    intents,
    experiments,
    state,
    chaos,
    incidents,
    guarded,
    plans,
  })
  registerAdmin(app, { live, sessions, clock, reload: () => reloader.reload('admin') })
  registerAdminMesh(app, { live, state, clock })
  registerAdminServers(app, { live, state, dynamic, restart: (name) => reloader.refresh(new Set([name])) })
  registerAdminChaos(app, { chaos, clock, targets })
  registerAdminIncidents(app, { incidents })
  registerAdminExperiments(app, { live, clock, experiments, guarded })
  registerAdminGuarded(app, { guarded, spec: experimentSpec, agentRuns })
  registerAdminGameDays(app, { gameDays, guarded, plan: gameDayPlanSchema })
  registerAdminRuns(app, { clock, index: runIndex })
  if (agentRuns !== undefined)
    registerAdminApprovals(app, {
      agentRuns,
      agents: agentNames,
      targets: () => envelopeTargetsOf(live.current),
    })
  registerAdminOutcomes(app, { clock, chaos, intents })
  registerChaos(app, { chaos, targets })
}

/** Returns the possible servers and arms of a plan. */
function targetsOf({ servers, config, mesh }: GatewayGeneration): PlanTargets {
  const isReadOnly = (server: string) => (tool: string) =>
    mesh.effectOf({ server, method: 'tools/call', tool }) === 'read_only'
  return {
    servers: serverTargets(servers).map((server) => ({ ...server, isReadOnly: isReadOnly(server.name) })),
    arms: armNames(config.experiments),
  }
}

/** Parses an address already checked by the config's schema. Throws for any other text. */
export function addressOf(text: string): Address {
  const address = parseAddress(text)
  if (address === undefined) throw new Error(`not an address: ${text}`)
  return address
}

/** Bind errors by code, in words. */
const causes: Readonly<Record<string, string>> = {
  EADDRINUSE: 'something else listens there already',
  EACCES: 'this user may not bind that port',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'there is no such host',
}

/**
 * Listens on an address, and resolves to its base URL. Rejects when the address cannot be bound; the error names the
 * config `key`.
 */
export async function listenAt({ host, port }: Address, app: FastifyInstance, key: string): Promise<string> {
  try {
    await app.listen({ host, port })
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    const cause = causes[code] ?? message
    throw new Error(
      `cannot listen on ${host}, port ${port}: ${cause}; set another address with ${key} or --port`,
      {
        cause: error,
      },
    )
  }
  if (host === 'localhost') await listenOnOtherAddresses(app.server)
  const { address, family, port: bound } = app.server.address() as AddressInfo
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`
}

/**
 * Listens on the other addresses of `localhost` (IPv4 and IPv6), and hands their connections to the same server, so its
 * limits cover both. Skips an address if it cannot be bound.
 */
async function listenOnOtherAddresses(server: Server): Promise<void> {
  const { address, port } = server.address() as AddressInfo
  // Ignores a failed lookup: then there is no other address, and the first address is bound already.
  for (const other of await lookup('localhost', { all: true }).catch(() => [])) {
    if (other.address === address) continue
    const beside = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      if (server.listening) server.emit('connection', socket)
      else socket.destroy()
    })
    server.once('close', () => beside.close())
    await new Promise<void>((resolve) => {
      beside.once('error', () => resolve())
      beside.listen(port, other.address, resolve)
    })
  }
}
