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
  /** Reads request bodies. */
  readonly bodies: Bodies
  /** Calls that are under way; the drain waits for it to fall to 0. */
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

/** Takes a request before Fastify sees it; false: it does not. */
export type DirectRoute = (request: IncomingMessage, response: ServerResponse) => boolean

/** The path of the endpoint of all servers, and what comes before the name in that of one server. */
const OF_ALL = '/mcp'
const OF_ONE = '/mcp/'

/**
 * `/mcp` and `/mcp/{server}`: POST, GET and DELETE of the MCP endpoints. Returns the short way of the usual POST, with JSON of a known
 * length, to an endpoint that is there: what Fastify does around a handler would be a twentieth of the CPU of a call. All else, and all that is
 * refused before its body is read, goes Fastify's way.
 */
export function registerMcp(
  app: FastifyInstance,
  { live, aggregate, legacy, modern, quotas, clock, log, bodies, load }: McpRoutesParts,
): DirectRoute {
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

  /** Whether there is such a server, or calls of a config before that go on at one which was removed. */
  const isKnown = (server: string) => live.open.some(({ servers }) => servers.has(server))

  /** The endpoint of a server, or the one of all; undefined when there is no such server. */
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

  /** Answers the client, whatever went wrong: by an error, or by the end of an answer that has begun already. */
  function defect({ response }: InboundRequest, cause: unknown): void {
    log.error({ err: cause }, 'a request met a defect of the gateway')
    if (response.headersSent) response.end()
    else sendJson(response, 500, gatewayErrorText(null, gatewayError('internal', 'internal error'), {}))
  }

  /** Everything that is done for a request whose reply is ours to write goes through here. `size`: of its body, in characters. */
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

  /** Asked before a body is read, and again when the body has come: a full gateway spends nothing on calls that it cannot serve. */
  const isFull = (client: string) => quotas.calls.exceeds(client) !== undefined

  /** Whether the body has to say if a full gateway takes a POST: answers come from open sessions, or to calls that wait for them. */
  const mayNeedNoPlace = (headers: IncomingHttpHeaders) =>
    legacy.knows(headers['mcp-session-id']) || (modern.isAsking && isModern(headers, undefined))

  /** Whether a full gateway takes a POST: answers, cancellations and pings begin no call, and may end one. */
  const needsNoPlace = (value: unknown) =>
    asksNothing(value) || modern.goesOn(value) || (isObject(value) && value.method === 'ping')

  /** The refusal of a POST by a full gateway, which is counted. */
  function fullness(client: string): BodyRefusal {
    const { calls } = quotas
    const limit = calls.exceeds(client) ?? 'perClient'
    const error = { ...calls.refuse(limit), retryAfterMs: 1_000 }
    const status = limit === 'max' ? 503 : 429
    return new BodyRefusal(status, error.message, gatewayErrorText(null, error, {}), { 'retry-after': '1' })
  }

  /** `whenFull`: the gateway had no place for a call when the body had come. */
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
    // It may also have been removed since the request came: its body waits for the end of a turn, and a large one for turns of its own.
    const goesOn = () => (isOfModern ? modern.goesOn(value) : asksNothing(value))
    if (server !== undefined && !isThere(server) && !goesOn()) return refuse(incoming, unknownServer(server))
    return isOfModern ? modern.post(incoming, body, value) : legacy.post(incoming, body, value)
  }

  /** A large request, or a batch of many, is read in a turn of its own; by then its client may have left. */
  async function postInTurn(incoming: InboundRequest, body: string, whenFull: boolean): Promise<void> {
    await ownTurn(incoming.client)
    if (!incoming.response.destroyed) await during('request', () => post(incoming, body, whenFull))
  }

  /** Takes a POST with its body, unless the gateway is full by now: others of the same turn have come before it. */
  function take({ incoming, body }: Arrived): void {
    load.inFlight--
    const { client, headers } = incoming
    const whenFull = isFull(client)
    if (whenFull && !mayNeedNoPlace(headers)) return refuseBody(incoming.response, fullness(client), clock)
    const take = body.length < LARGE_TEXT && !isBatch(body) ? post : postInTurn
    contained(incoming, () => take(incoming, body, whenFull), body.length)
  }

  const arrived = new TurnBatch(take)

  /** From here on the drain waits for it. */
  function arrive(post: Arrived): void {
    load.inFlight++
    arrived.add(post)
  }

  for (const url of [OF_ALL, `${OF_ONE}:server`]) {
    app.post(url, (request, reply) => {
      const { body } = request
      // The request is kept until its reply has been read; nobody counts what it holds by then.
      request.body = undefined
      if (typeof body !== 'string') return noBody(reply)
      if (!acceptsAny(request.headers.accept))
        return notAcceptable(reply, 'application/json, text/event-stream or both')
      const incoming = inboundRequestOf(request, reply)
      if (incoming !== undefined) arrive({ incoming, body })
    })
    // A HEAD would be taken for a client that listens.
    app.get(url, { exposeHeadRoute: false }, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const incoming = acceptsEvents(request, reply) ? inboundRequestOf(request, reply) : undefined
      if (incoming !== undefined) contained(incoming, () => legacy.listen(incoming))
    })
    app.delete(url, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const incoming = inboundRequestOf(request, reply)
      if (incoming === undefined) return
      // Earlier messages of the client must not meet a session that is unknown by then.
      arrived.flush()
      contained(incoming, () => legacy.leave(incoming))
    })
  }

  return (request, response) => {
    const { method, url = '', headers } = request
    if (method !== 'POST' || isClosing) return false
    if (headers['content-type'] !== 'application/json' || !(Number(headers['content-length']) > 0))
      return false
    // The name of a server has no query in it, no escapes, and nothing else that a router would have to tidy.
    const server = url === OF_ALL ? undefined : url.slice(OF_ONE.length)
    if (!(url === OF_ALL || url.startsWith(OF_ONE)) || !isThere(server)) return false
    // Not by `fullness`, which counts the refusal: Fastify's way counts it.
    const client = clientOf(request.socket.remoteAddress)
    if (!acceptsAny(headers.accept) || isFull(client)) return false
    bodies.read(request, (refused, body = '') => {
      if (refused !== null) return refuseBody(response, refused, clock)
      const endpoint = endpointOf(server)
      if (endpoint !== undefined) return arrive({ incoming: { endpoint, headers, client, response }, body })
      const { status, text } = unknownServer(server ?? '')
      sendJson(response, status, text)
    })
    return true
  }
}

/** Whether a POST asks for nothing: it holds answers and notifications, which may belong to calls that are under way. */
const asksNothing = (value: unknown) =>
  (Array.isArray(value) ? value : [value]).every(
    (message) => isObject(message) && kindOf(message) !== 'request',
  )

const BRACE = 0x7b

/** Whether a body is an array, if it is JSON: a short text may ask for as much as a hundred others. */
const isBatch = (body: string) => body.charCodeAt(0) !== BRACE && body.trimStart().startsWith('[')

/** The modern era has no streams to open and no sessions to leave. */
function onlyPost(reply: FastifyReply): void {
  const text = errorText(
    null,
    INVALID_REQUEST,
    'Method not allowed: this version of the protocol knows POST only',
  )
  void reply.code(405).header('allow', 'POST').type('application/json').send(text)
}

/** Refuses a request without a body, which need not even name a type. */
function noBody(reply: FastifyReply): void {
  const text = errorText(null, PARSE_ERROR, 'Parse error: the request has no body')
  void reply.code(400).type('application/json').send(text)
}

/** A POST is answered in one of two ways, and the client has to be ready for one of them. */
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
