import Fastify, { type FastifyInstance } from 'fastify'
import type { GatewayConfig } from '../config/schema/schema.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR } from '../protocol/jsonrpc.ts'
import { createGuardedServer, type ServerGuards } from './http-server.ts'
import { MAX_DEPTH } from '../protocol/json-check.ts'
import { isDeeperThan } from '../protocol/json-scan.ts'
import { BodyRefusal, type Bodies } from '../routes/bodies.ts'
import {
  allowsHost,
  allowsOrigin,
  demandToken,
  hostGuard,
  isCrossOrigin,
  isOfAnotherSite,
  type ControlAccess,
} from '../routes/guard.ts'
import type { Log } from '../telemetry/log.ts'
import { printableJson } from '../telemetry/printable.ts'

export interface PlaneParts {
  /** Host that the plane binds, without its port. */
  readonly host: string
  readonly log: Log
  /** What bounds its connections. */
  readonly guards: ServerGuards
}

/** Above the idle time of clients' pools, so that they and not we close a connection; in milliseconds. */
const KEEP_ALIVE_MS = 75_000

/** How long the head of a request may take, also of one that has not begun, in milliseconds. */
const HEADERS_MS = 60_000

/** How long a request may take to come that is read elsewhere than by `Bodies`, in milliseconds. */
const REQUEST_MS = 300_000

function createPlane({ log, guards }: PlaneParts): FastifyInstance {
  const app = Fastify({
    logger: false,
    serverFactory(listener) {
      const server = createGuardedServer(listener, guards)
      server.keepAliveTimeout = KEEP_ALIVE_MS
      server.headersTimeout = HEADERS_MS
      server.requestTimeout = REQUEST_MS
      return server
    },
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 128, ignoreTrailingSlash: true },
  })
  // Each part reads bodies in its own way; those for which there is no route are not read at all.
  app.removeAllContentTypeParsers()
  app.setErrorHandler((error: Error & { statusCode?: number }, _, reply) => {
    if (error instanceof BodyRefusal)
      return void reply
        .code(error.statusCode)
        .headers(error.headers)
        .type('application/json')
        .send(error.text)
    const status = error.statusCode ?? 500
    if (status >= 500) log.error({ err: error }, 'a request met a defect of the gateway')
    const message = status >= 500 ? 'internal error' : error.message
    void reply
      .code(status)
      .type('application/json')
      .send(errorText(null, status === 400 ? PARSE_ERROR : INVALID_REQUEST, message))
  })
  app.setNotFoundHandler((request, reply) => {
    void reply
      .code(404)
      .send({ error: `no route ${request.method} ${request.url.split('?')[0]?.slice(0, 200)}` })
  })
  return app
}

/** The plane that agents reach. Whom it lets in may change with a reload. */
export function createDataPlane(
  parts: PlaneParts & { readonly allowed: () => Pick<GatewayConfig, 'allowedHosts' | 'allowedOrigins'> },
): FastifyInstance {
  const app = createPlane(parts)
  let names: readonly string[] | undefined
  let isAllowed = hostGuard(parts.host, [])
  app.addHook('onRequest', (request, reply, done) => {
    const { allowedHosts, allowedOrigins } = parts.allowed()
    if (allowedHosts !== names) isAllowed = hostGuard(parts.host, (names = allowedHosts))
    const { host, origin } = request.headers
    const refused = !isAllowed(host)
      ? 'Host not allowed; see gateway.allowedHosts'
      : !allowsOrigin(origin, allowedOrigins)
        ? 'Origin not allowed; see gateway.allowedOrigins'
        : origin === undefined && isOfAnotherSite(request.headers)
          ? 'a browser asks for a page of another site and does not say which (no Origin)'
          : undefined
    if (refused === undefined) return done()
    void reply
      .code(403)
      .type('application/json')
      .send(errorText(null, INVALID_REQUEST, `Forbidden: ${refused}`))
  })
  return app
}

/** The plane that operators reach: no browser page of another origin, and a token for whatever changes something. */
export function createControlPlane(
  parts: PlaneParts & {
    readonly access: ControlAccess
    /** Reads request bodies. */
    readonly bodies: Bodies
  },
): FastifyInstance {
  const app = createPlane(parts)
  // Operators read it on terminals, and much of it are the words of servers and agents.
  app.setReplySerializer((payload) => printableJson(JSON.stringify(payload)))
  const json = app.getDefaultJsonParser('error', 'error')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    parts.bodies.read(request, payload, (error, text = '') => {
      if (error !== null) return done(error, undefined)
      // Whoever walks a body that was read here may do so recursively.
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
