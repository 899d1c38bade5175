import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Front } from '../downstream/front.ts'
import type { LegacyEndpoint } from '../downstream/legacy.ts'
import type { ModernEndpoint } from '../downstream/modern/endpoint.ts'
import { isModern } from '../downstream/modern/envelope.ts'
import { sendJson } from '../downstream/post-reply.ts'
import { gatewayErrorText } from '../downstream/respond.ts'
import { ServerFront } from '../downstream/server-front.ts'
import type { Visit } from '../downstream/visit.ts'
import { gatewayError } from '../mesh/errors.ts'
import { during, LARGE_TEXT } from '../mesh/work.ts'
import type { Live } from '../mesh/live.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR, parseJson } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Log } from '../telemetry/log.ts'

export interface McpRoutesParts {
  readonly live: Live<GatewayGeneration>
  readonly aggregate: Front
  readonly legacy: LegacyEndpoint
  readonly modern: ModernEndpoint
  readonly log: Log
  /** Calls that are under way; the drain waits for it to fall to 0. */
  readonly load: { inFlight: number }
}

interface ServerParams {
  readonly server?: string
}

/** `/mcp` and `/mcp/{server}`: POST, GET and DELETE of the MCP endpoints. */
export function registerMcp(
  app: FastifyInstance,
  { live, aggregate, legacy, modern, log, load }: McpRoutesParts,
): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_, body, done) => done(null, body))

  /** The front that a path names; otherwise the refusal is sent, and undefined returned. */
  function frontOf(request: FastifyRequest, reply: FastifyReply): Front | undefined {
    const { server } = request.params as ServerParams
    if (server === undefined) return aggregate
    if (live.current.servers.has(server)) return new ServerFront(server)
    const known = [...live.current.servers.keys()].slice(0, 20).join(', ')
    const text = errorText(
      null,
      INVALID_REQUEST,
      `Unknown server: ${server.slice(0, 64)} (servers: ${known})`,
    )
    void reply.code(404).type('application/json').send(text)
    return undefined
  }

  function visitOf(request: FastifyRequest, reply: FastifyReply): Visit | undefined {
    const front = frontOf(request, reply)
    if (front === undefined) return undefined
    reply.hijack()
    return { front, headers: request.headers, response: reply.raw }
  }

  function defect({ response }: Visit, cause: unknown): void {
    log.error({ err: cause }, 'a request met a defect of the gateway')
    sendJson(response, 500, gatewayErrorText(null, gatewayError('internal', 'internal error'), {}))
  }

  /** Before the body is read: a gateway that is full spends nothing on what it cannot serve. */
  function shed(_: FastifyRequest, reply: FastifyReply, done: () => void): void {
    const { maxInFlight } = live.current.config.gateway
    if (load.inFlight < maxInFlight) return done()
    const error = gatewayError('overloaded', `too many calls (${maxInFlight} of ${maxInFlight})`, {
      retryAfterMs: 1000,
    })
    void reply
      .code(503)
      .header('retry-after', '1')
      .type('application/json')
      .send(gatewayErrorText(null, error, {}))
  }

  function post(visit: Visit, body: string): void {
    const value = parseJson(body)
    if (value === undefined) {
      return sendJson(visit.response, 400, errorText(null, PARSE_ERROR, 'Parse error: the body is not JSON'))
    }
    const ending = isModern(visit.headers, value)
      ? modern.post(visit, body, value)
      : legacy.post(visit, body, value)
    if (ending === undefined) return
    load.inFlight++
    const done = () => void load.inFlight--
    ending.then(done, (cause: unknown) => {
      done()
      defect(visit, cause)
    })
  }

  for (const url of ['/mcp', '/mcp/:server']) {
    app.post(url, { onRequest: shed }, (request, reply) => {
      const visit = accepts(request, reply) ? visitOf(request, reply) : undefined
      const body = request.body as string
      if (visit === undefined) return
      if (body.length < LARGE_TEXT) post(visit, body)
      else during('request', () => post(visit, body))
    })
    app.get(url, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const visit = acceptsEvents(request, reply) ? visitOf(request, reply) : undefined
      if (visit !== undefined) legacy.listen(visit)
    })
    app.delete(url, (request, reply) => {
      if (isModern(request.headers, undefined)) return onlyPost(reply)
      const visit = visitOf(request, reply)
      if (visit !== undefined) legacy.leave(visit).catch((cause) => defect(visit, cause))
    })
  }
}

/** The modern era has no streams to open and no sessions to leave. */
function onlyPost(reply: FastifyReply): void {
  const text = errorText(
    null,
    INVALID_REQUEST,
    'Method not allowed: this version of the protocol knows POST only',
  )
  void reply.code(405).header('allow', 'POST').type('application/json').send(text)
}

/** A POST is answered in one of two ways, and the client has to be ready for both. */
function accepts(request: FastifyRequest, reply: FastifyReply): boolean {
  const { accept } = request.headers
  if (accept === undefined || accept.includes('*/*')) return true
  if (accept.includes('application/json') && accept.includes('text/event-stream')) return true
  return notAcceptable(reply, 'application/json and text/event-stream')
}

function acceptsEvents(request: FastifyRequest, reply: FastifyReply): boolean {
  const { accept } = request.headers
  if (accept !== undefined && (accept.includes('text/event-stream') || accept.includes('*/*'))) return true
  return notAcceptable(reply, 'text/event-stream')
}

function notAcceptable(reply: FastifyReply, what: string): false {
  const text = errorText(null, INVALID_REQUEST, `Not Acceptable: the Accept header must name ${what}`)
  void reply.code(406).type('application/json').send(text)
  return false
}
