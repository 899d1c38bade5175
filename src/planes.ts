import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import type { GatewayConfig } from './config/schema/schema.ts'
import { errorText, INVALID_REQUEST, PARSE_ERROR } from './protocol/jsonrpc.ts'
import { allowsHost, allowsOrigin, hasToken, hostGuard, isCrossOrigin } from './routes/guard.ts'
import type { Log } from './telemetry/log.ts'
import { printableJson } from './telemetry/printable.ts'

export interface PlaneParts {
  /** Host that the plane binds, without its port. */
  readonly host: string
  /** Largest request body, in bytes. */
  readonly maxBody: number
  readonly log: Log
}

/** Above the idle time of clients' pools, so that they and not we close a connection; in milliseconds. */
const KEEP_ALIVE_MS = 75_000

function createPlane({ maxBody, log }: PlaneParts): FastifyInstance {
  const app = Fastify({
    logger: false,
    bodyLimit: maxBody,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 128, ignoreTrailingSlash: true },
  })
  app.server.headersTimeout = 60_000
  app.setErrorHandler((error: Error & { statusCode?: number }, _, reply) => {
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
        : undefined
    if (refused === undefined) return done()
    void reply
      .code(403)
      .type('application/json')
      .send(errorText(null, INVALID_REQUEST, `Forbidden: ${refused}`))
  })
  return app
}

/** The plane that operators reach: no browser page of another origin, and a token when one is set. */
export function createControlPlane(
  parts: PlaneParts & { readonly token: string | undefined },
): FastifyInstance {
  const app = createPlane(parts)
  // Operators read it on terminals, and much of it are the words of servers and agents.
  app.setReplySerializer((payload) => printableJson(JSON.stringify(payload)))
  const refusal = (request: FastifyRequest): [number, string] | undefined => {
    const { headers } = request
    if (isCrossOrigin(headers) || !allowsHost(headers.host, parts.host, []))
      return [403, 'forbidden: another origin or host']
    if (parts.token === undefined || hasToken(headers.authorization, parts.token)) return undefined
    return [401, 'unauthorized: send the control token as a bearer token']
  }
  app.addHook('onRequest', (request, reply, done) => {
    const refused = refusal(request)
    if (refused === undefined) return done()
    const [status, error] = refused
    if (status === 401) void reply.header('www-authenticate', 'Bearer')
    void reply.code(status).send({ error })
  })
  return app
}
