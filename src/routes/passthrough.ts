import proxy from '@fastify/http-proxy'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Dispatcher } from 'undici'
import { clientOf, type Quotas } from '../downstream/quotas.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError, reasons, type Reason } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Log } from '../telemetry/log.ts'
import { bodyTooLarge, Exchange, type Failure } from './passthrough/exchange.ts'
import { proxyPathOf } from './passthrough/path.ts'

export interface PassthroughParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly log: Log
  /** Calls that are under way; the drain waits for it to fall to 0. */
  readonly load: { inFlight: number }
  /** Those of calls count its requests as well. */
  readonly quotas: Pick<Quotas, 'calls'>
}

/** The exchange of a request on its way through reply-from, which hands over headers and nothing else of ours. */
const EXCHANGE = Symbol('exchange')

type Handed = Dispatcher.RequestOptions & {
  readonly headers: Record<string, string | string[] | undefined> & { [EXCHANGE]?: Exchange }
}

/** Statuses by reason, where a client of a proxy expects another one than 502. */
const statuses: Readonly<Partial<Record<Reason, number>>> = {
  deadline_exceeded: 504,
  attempt_timeout: 504,
  overloaded: 503,
  internal: 500,
}

/**
 * `/proxy/{server}/*`: plain HTTP to a server whose entry says `passthrough: true`, below the folder of its (first) URL:
 * `/proxy/a/x` is `http://host/base/x` for `http://host/base/mcp`. What is said is not looked at, so no policy and no
 * filter of tools acts on it; limits, deadline, TLS and headers of the operator hold, and nothing is sent twice.
 */
export async function registerPassthrough(app: FastifyInstance, parts: PassthroughParts): Promise<void> {
  const { live, clock, log, load } = parts
  const { calls } = parts.quotas
  const exchanges = new WeakMap<FastifyRequest, Exchange>()

  /** Before the body is read; the refusal is sent, if there is one. */
  function admit(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
    const { config, servers, mesh } = live.current
    const { maxBody } = config.gateway
    const { server: name = '' } = request.params as { server?: string }
    const server = servers.get(name)
    const way = server?.plainHttp
    if (server === undefined || way === undefined)
      return refuse(reply, 404, 'no such server, or its entry does not say passthrough: true')
    if (request.headers.upgrade !== undefined)
      return refuse(reply, 501, 'no other protocol is spoken here: WebSocket and the like do not pass')
    const path = proxyPathOf(request.raw.url ?? '')
    if (!path.ok) return refuse(reply, 400, path.why)
    if (['GET', 'HEAD'].includes(request.method) && hasBody(request))
      return refuse(reply, 400, `a ${request.method} with a body does not pass`)
    if (Number(request.headers['content-length']) > maxBody)
      return answer(reply, bodyTooLarge(maxBody, false))
    const client = clientOf(request.socket.remoteAddress)
    const full = calls.refusal(client)
    if (full !== undefined) {
      void reply.header('retry-after', '1')
      return answer(reply, { ...full, retryAfterMs: 1_000 })
    }
    const { maxReply } = server.config
    const chain = mesh.chainFor(name, 'proxy', undefined)
    const limits = { maxBody, maxReply, deadlineMs: deadlineIn(chain) }
    const exchange = new Exchange({ way, server: name, path: path.path, limits, clock })
    exchanges.set(request, exchange)
    load.inFlight++
    calls.take(client)
    server.retain()
    reply.raw.once('close', () => {
      load.inFlight--
      calls.release(client)
      exchange.end()
      server.release()
    })
    done()
  }

  const exchangeOf = (request: FastifyRequest): Exchange => {
    const exchange = exchanges.get(request)
    if (exchange === undefined) throw new Error('a request that was not let in')
    return exchange
  }

  function failed(reply: FastifyReply, error: Error & { readonly statusCode?: number }): void {
    const failure = exchanges.get(reply.request)?.failure
    if (failure !== undefined) return answer(reply, failure)
    const status = error.statusCode ?? 500
    if (status < 500) return refuse(reply, status, error.message)
    log.error({ err: error }, 'a request met a defect of the gateway')
    answer(reply, gatewayError('internal', 'internal error', { sent: true }))
  }

  app.addHook('onRequest', admit)
  app.addHook('preHandler', (request, _, done) => {
    if (request.body !== undefined) request.body = exchangeOf(request).limitedBody(request.raw)
    done()
  })
  app.setErrorHandler((error: Error & { statusCode?: number }, _, reply) => failed(reply, error))
  // Text as well passes as the bytes that it is.
  app.removeAllContentTypeParsers()
  await app.register(proxy, {
    prefix: '/proxy/:server',
    upstream: '',
    httpMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
    internalRewriteLocationHeader: false,
    disableRequestLogging: true,
    retryMethods: [],
    // In place of a pool that knows nothing of the server's settings, and would not check certificates.
    undici: { request: send as Dispatcher['request'] },
    handler: (_, reply, __, options) => reply.from('/', options),
    replyOptions: {
      getUpstream: () => 'http://unused.invalid',
      onError: (reply, { error }) => failed(reply as FastifyReply, error),
      rewriteRequestHeaders: (request, headers) => {
        const exchange = exchangeOf(request as FastifyRequest)
        const { host: _, ...rest } = headers as Handed['headers']
        return { ...exchange.requestHeaders(rest), [EXCHANGE]: exchange } as typeof headers
      },
    },
  })
}

function send(options: Handed, done: (error: Error | null, reply?: object) => void): void {
  const { method, path, body, headers } = options
  const exchange = headers[EXCHANGE]
  if (exchange === undefined) throw new Error('a request that was not let in')
  const query = path.indexOf('?')
  exchange.send({ method, body: body ?? null, headers }, query === -1 ? '' : path.slice(query), done)
}

/** The deadline among the policies of a chain, in milliseconds. */
function deadlineIn(
  chain: readonly { readonly layer: string; readonly config?: unknown }[],
): number | undefined {
  const config = chain.find(({ layer }) => layer === 'deadline')?.config
  return isObject(config) && typeof config.total === 'number' ? config.total : undefined
}

const hasBody = ({ headers }: FastifyRequest) =>
  'transfer-encoding' in headers || Number(headers['content-length'] ?? 0) > 0

/** Refuses a request that was sent to nobody. */
function refuse(reply: FastifyReply, status: number, error: string): void {
  closeAfter(reply)
  void reply.code(status).send({ error, sent: false })
}

/** What is left of a body, or comes in another protocol, is no next request. */
function closeAfter(reply: FastifyReply): void {
  const { request } = reply
  const isLeft = hasBody(request) && !request.raw.complete
  if (isLeft || request.headers.upgrade !== undefined) void reply.header('connection', 'close')
}

/** Answers with an error of the gateway; nothing of a reply that was begun stays. */
function answer(reply: FastifyReply, { reason, message, sent, status }: Failure): void {
  for (const name of Object.keys(reply.getHeaders())) if (name !== 'retry-after') reply.removeHeader(name)
  closeAfter(reply)
  void reply
    .code(status ?? statuses[reason] ?? 502)
    .type('application/json')
    .send({ error: message, code: reasons[reason].stable, sent })
}
