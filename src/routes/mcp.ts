import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { acceptedBy } from '../downstream/accept.ts'
import type { Endpoint, InboundRequest } from '../downstream/endpoint.ts'
import { isRounded, keepId } from '../downstream/exact-id.ts'
import type { LegacyHandler } from '../downstream/legacy/handler.ts'
import type { ModernHandler } from '../downstream/modern/handler.ts'
import { refusal, type Refusal, refuse, sendJson } from '../downstream/http/post-reply.ts'
import { clientOf, type Quotas } from '../downstream/limits/quotas.ts'
import { gatewayErrorText } from '../downstream/respond.ts'
import { ServerEndpoint } from '../downstream/endpoints.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { ownTurn, TurnBatch } from '../mesh/turns.ts'
import { during, LARGE_TEXT } from '../mesh/work.ts'
import { readJson } from '../protocol/json-check.ts'
import { errorText, idOf, INVALID_REQUEST, isObject, kindOf, PARSE_ERROR } from '../protocol/jsonrpc.ts'
import { isModern } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Log } from '../telemetry/log.ts'
import type { BodySource, HttpReply } from '../downstream/http/reply.ts'
import type { Target, UsualRoute } from '../downstream/http/engine/core.ts'
import { type Bodies, BodyRefusal, NOT_JSON, refuseBody } from '../downstream/http/bodies.ts'
import { firstOf } from '../units/numbered.ts'

export interface McpRoutesParts {
  readonly live: Live<GatewayGeneration>
  readonly aggregate: Endpoint
  readonly legacy: LegacyHandler
  readonly modern: ModernHandler
  readonly quotas: Pick<Quotas, 'calls'>
  readonly clock: Clock
  readonly log: Log
  readonly bodies: Bodies
  /** Calls in progress; the drain waits until this falls to 0. */
  readonly load: { inFlight: number }
}

/** A POST whose body is complete. */
interface Arrived {
  readonly incoming: InboundRequest
  readonly body: string
}

interface ServerParams {
  readonly server?: string
}

/** Handles a request before Fastify; false leaves the request to Fastify. */
export type DirectRoute = (request: IncomingMessage, response: ServerResponse) => boolean

/** The routes for the usual POST: for requests of Node's server, and of our own engine. */
export interface DirectRoutes {
  readonly direct: DirectRoute
  readonly usual: UsualRoute
}

/** The path of the endpoint for all servers, and the path prefix of endpoints of single servers. */
const OF_ALL = '/mcp'
const OF_ONE = '/mcp/'

/**
 * Registers POST, GET and DELETE of the MCP endpoints, `/mcp` and `/mcp/{server}`. Returns direct routes for the usual
 * POST: JSON of known length to an existing endpoint. A direct route saves Fastify's work, a twentieth of the CPU of a
 * call. All other requests, and nearly all refusals before a body is read, go through Fastify.
 */
export function registerMcp(
  app: FastifyInstance,
  { live, aggregate, legacy, modern, quotas, clock, log, bodies, load }: McpRoutesParts,
): DirectRoutes {
  let isClosing = false
  app.addHook('preClose', (done) => {
    isClosing = true
    done()
  })
  app.addContentTypeParser('application/json', (_, payload, done) => {
    const client = clientOf(payload.socket.remoteAddress)
    if (!isFull(client) || mayNeedNoPlace(payload.headers)) bodies.read(payload, done)
    else done(fullness(client))
  })
  app.addContentTypeParser('*', (_, __, done) => done(new BodyRefusal(415, NOT_JSON)))

  const isThere = (server: string | undefined) => server === undefined || live.current.servers.has(server)

  /** True when a server has this name in the config in force, or in an earlier config whose calls still run. */
  const isKnown = (server: string) => live.open.some(({ servers }) => servers.has(server))

  /** Returns the endpoint of a server, or of all servers; undefined for an unknown server. */
  function endpointOf(server: string | undefined): Endpoint | undefined {
    if (server === undefined) return aggregate
    return isKnown(server) ? new ServerEndpoint(server) : undefined
  }

  function unknownServer(server: string): Refusal {
    const known = firstOf([...live.current.servers.keys()])
    const why = `Unknown server: ${server.slice(0, 64)} (servers: ${known})`
    return refusal(404, null, INVALID_REQUEST, why)
  }

  function inboundRequestOf(request: FastifyRequest, reply: FastifyReply): InboundRequest | undefined {
    const { server } = request.params as ServerParams
    const endpoint = endpointOf(server)
    if (endpoint === undefined) {
      const { status, text } = unknownServer(server ?? '')
      void reply.code(status).type('application/json').send(text)
      return undefined
    }
    reply.hijack()
    const client = clientOf(request.socket.remoteAddress)
    return { endpoint, headers: request.headers, client, response: reply.raw }
  }

  /** Answers the client after an internal error; ends an answer that has already begun. */
  function defect({ response }: InboundRequest, cause: unknown): void {
    log.error({ err: cause }, 'internal error while handling a request (a bug in Breakwater)')
    if (response.headersSent) response.end()
    else sendJson(response, 500, gatewayErrorText(null, gatewayError('internal', 'internal error'), {}))
  }

  /**
   * Runs `take`, which writes the reply itself, and counts a call until `take` has ended. Answers the client after an
   * error of `take`. `size`: length of the body, in characters.
   */
  function contained(incoming: InboundRequest, take: () => Promise<void> | undefined | void, size = 0): void {
    let ending: Promise<void> | undefined | void
    try {
      ending = take()
    } catch (cause) {
      return defect(incoming, cause)
    }
    if (ending === undefined) return
    const { client, headers } = incoming
    load.inFlight++
    quotas.calls.take(client)
    const letGo = bodies.hold(client, headers, size)
    const done = () => {
      load.inFlight--
      quotas.calls.release(client)
      letGo?.()
    }
    ending.then(done, (cause: unknown) => {
      done()
      defect(incoming, cause)
    })
  }

  /**
   * True when the gateway has no place for another call of the client. Checked before a body is read and again after
   * it, so that refused calls cost little.
   */
  const isFull = (client: string) => quotas.calls.exceeds(client) !== undefined

  /**
   * True when a full gateway must read the body before it can refuse a POST. The body may have answers for open
   * sessions or waiting calls.
   */
  const mayNeedNoPlace = (headers: IncomingHttpHeaders) =>
    legacy.knows(headers['mcp-session-id']) || (modern.isAsking && isModern(headers, undefined))

  /**
   * True when even a full gateway accepts a POST: answers, cancellations and pings begin no call, and may end a call.
   */
  const needsNoPlace = (value: unknown) =>
    asksNothing(value) || modern.goesOn(value) || (isObject(value) && value.method === 'ping')

  /** Counts the refusal of a POST by a full gateway, and returns its error. */
  function fullness(client: string): BodyRefusal {
    const { calls } = quotas
    const limit = calls.exceeds(client) ?? 'perClient'
    const error = { ...calls.refuse(limit), retryAfterMs: 1_000 }
    const status = limit === 'max' ? 503 : 429
    return new BodyRefusal(status, error.message, gatewayErrorText(null, error, {}), { 'retry-after': '1' })
  }

  /** Handles a POST with its body. `whenFull`: true when the gateway was full as the body was complete. */
  function post(incoming: InboundRequest, body: string, whenFull: boolean): Promise<void> | undefined {
    const { server } = incoming.endpoint
    const read = readJson(body)
    if (isObject(read.value) && isRounded(read.value.id)) keepId(incoming.response, { text: body })
    if (!read.ok) return refuse(incoming, refusal(400, idOf(read.value), read.code, read.message))
    const { value } = read
    if (whenFull && !needsNoPlace(value)) {
      refuseBody(incoming.response, fullness(incoming.client), clock)
      return undefined
    }
    const isOfModern = isModern(incoming.headers, value)
    // Checks the server again, because a reload may have removed it while the body waited for its turn.
    const goesOn = () => (isOfModern ? modern.goesOn(value) : asksNothing(value))
    if (server !== undefined && !isThere(server) && !goesOn()) return refuse(incoming, unknownServer(server))
    return isOfModern ? modern.post(incoming, body, value) : legacy.post(incoming, body, value)
  }

  /** Handles a large request or a batch in a separate turn, unless the client has disconnected by then. */
  async function postInTurn(incoming: InboundRequest, body: string, whenFull: boolean): Promise<void> {
    await ownTurn(incoming.client)
    if (!incoming.response.destroyed) await during('request', () => post(incoming, body, whenFull))
  }

  /** Handles a complete POST, unless earlier requests of the same turn have filled the gateway. */
  function take({ incoming, body }: Arrived): void {
    load.inFlight--
    const { client, headers } = incoming
    const whenFull = isFull(client)
    if (whenFull && !mayNeedNoPlace(headers)) return refuseBody(incoming.response, fullness(client), clock)
    const take = body.length < LARGE_TEXT && !isBatch(body) ? post : postInTurn
    contained(incoming, () => take(incoming, body, whenFull), body.length)
  }

  const arrived = new TurnBatch(take)

  /** Queues a complete POST for the end of the turn. The drain waits for this request from now on. */
  function arrive(post: Arrived): void {
    load.inFlight++
    arrived.add(post)
  }

  for (const url of [OF_ALL, `${OF_ONE}:server`]) {
    app.post(url, (request, reply) => {
      const { body } = request
      // Drops the body from Fastify's request: Fastify keeps the request until the client has read the reply, and no
      // quota counts the body then.
      request.body = undefined
      if (typeof body !== 'string') return noBody(reply)
      if (!acceptsAny(request.headers.accept))
        return notAcceptable(reply, 'application/json, text/event-stream or both')
      const incoming = inboundRequestOf(request, reply)
      if (incoming !== undefined) arrive({ incoming, body })
    })
    // Adds no HEAD route, because a HEAD would count as a client that listens.
    app.get(url, { exposeHeadRoute: false }, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const incoming = acceptsEvents(request, reply) ? inboundRequestOf(request, reply) : undefined
      if (incoming !== undefined) contained(incoming, () => legacy.listen(incoming))
    })
    app.delete(url, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const incoming = inboundRequestOf(request, reply)
      if (incoming === undefined) return
      // Handles the earlier messages of the client first, because they must reach the session before it ends.
      arrived.flush()
      contained(incoming, () => legacy.leave(incoming))
    })
  }

  /** Returns the target of a usual POST by its head; undefined for all other requests. */
  function targetOf(url: string, headers: IncomingHttpHeaders): Target | undefined {
    if (headers['content-type'] !== 'application/json' || !acceptsAny(headers.accept)) return undefined
    // Compares the raw path with server names: these names have no query, and need no decoding.
    if (url === OF_ALL) return ofAll
    return url.startsWith(OF_ONE) ? { server: url.slice(OF_ONE.length) } : undefined
  }

  /** Handles a body that has been read, or its refusal. */
  function takeBody(reply: HttpReply, { server }: Target, client: string, body: string | BodyRefusal): void {
    if (typeof body !== 'string') return refuseBody(reply, body, clock)
    const endpoint = endpointOf(server)
    const { headers } = reply.req
    if (endpoint !== undefined)
      return arrive({ incoming: { endpoint, headers, client, response: reply }, body })
    const { status, text } = unknownServer(server ?? '')
    sendJson(reply, status, text)
  }

  function readBody(reply: HttpReply, target: Target, client: string, source: BodySource): void {
    bodies.read(source, (refused, body = '') => takeBody(reply, target, client, refused ?? body))
  }

  const isRefused = (client: string, headers: IncomingHttpHeaders) =>
    isFull(client) && !mayNeedNoPlace(headers)

  const direct: DirectRoute = (request, response) => {
    const { method, url = '', headers } = request
    if (method !== 'POST' || isClosing || !(Number(headers['content-length']) > 0)) return false
    const target = targetOf(url, headers)
    if (target === undefined || !isThere(target.server)) return false
    // Uses `isFull`, which counts no refusal, because Fastify's route counts the refusal.
    const client = clientOf(request.socket.remoteAddress)
    if (isFull(client)) return false
    readBody(response, target, client, request)
    return true
  }
  const usual: UsualRoute = {
    largestWhole: bodies.largestWhole,
    targetOf: ({ path, headers }) => targetOf(path, headers),
    mayTake: ({ server }) => !isClosing && isThere(server),
    take(target, reply, client, chunk, from, to) {
      const { headers } = reply.req
      const body = isRefused(client, headers) ? fullness(client) : bodies.textOf(headers, chunk, from, to)
      takeBody(reply, target, client, body)
    },
    takeParts(target, reply, client, body) {
      if (isRefused(client, body.headers)) refuseBody(reply, fullness(client), clock)
      else readBody(reply, target, client, body)
    },
  }
  return { direct, usual }
}

const ofAll: Target = { server: undefined }

/** True when a POST has only answers and notifications, which may belong to calls in progress. */
const asksNothing = (value: unknown) =>
  (Array.isArray(value) ? value : [value]).every(
    (message) => isObject(message) && kindOf(message) !== 'request',
  )

const BRACE = 0x7b

/** True when a body is a JSON array: even a short batch may have a hundred calls. */
const isBatch = (body: string) => body.charCodeAt(0) !== BRACE && body.trimStart().startsWith('[')

/** Answers 405 to a GET or DELETE of the modern era, which has no streams to open and no sessions to end. */
function onlyPost(reply: FastifyReply): void {
  const text = errorText(
    null,
    INVALID_REQUEST,
    'Method not allowed: this version of the protocol knows POST only',
  )
  void reply.code(405).header('allow', 'POST').type('application/json').send(text)
}

/** Answers 400 to a request without a body. */
function noBody(reply: FastifyReply): void {
  const text = errorText(null, PARSE_ERROR, 'Parse error: the request has no body')
  void reply.code(400).type('application/json').send(text)
}

/** True when the client accepts at least one of the two formats of replies: JSON or events. */
function acceptsAny(accept: string | undefined): boolean {
  const { json, events } = acceptedBy(accept)
  return json || events
}

function acceptsEvents(request: FastifyRequest, reply: FastifyReply): boolean {
  const { accept } = request.headers
  if (accept !== undefined && acceptedBy(accept).events) return true
  notAcceptable(reply, 'text/event-stream')
  return false
}

function notAcceptable(reply: FastifyReply, what: string): void {
  const text = errorText(null, INVALID_REQUEST, `Not Acceptable: the Accept header must name ${what}`)
  void reply.code(406).type('application/json').send(text)
}
