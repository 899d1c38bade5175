import { IncomingMessage } from 'node:http'
import { type Readable, Transform } from 'node:stream'
import proxy from '@fastify/http-proxy'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Dispatcher } from 'undici'
import { hopByHop } from '../config/schema/header-schema.ts'
import { clientOf, type Quotas } from '../downstream/limits/quotas.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError, stableCode } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { type PlainHttp, plainHttpError } from '../registry/server.ts'
import type { Log } from '../telemetry/log.ts'
import { formatDuration } from '../units/duration.ts'

export interface PassthroughParts {
  readonly live: Live<GatewayGeneration>
  readonly clock: Clock
  readonly log: Log
  /** Calls that are under way; the drain waits for it to fall to 0. */
  readonly load: { inFlight: number }
  /** The quota of calls counts plain HTTP requests as well. */
  readonly quotas: Pick<Quotas, 'calls'>
}

/** The key under which a request keeps its `ProxiedRequest` on its way through reply-from, which hands over headers only. */
const PROXIED = Symbol('proxied')

type WithProxied = Dispatcher.RequestOptions & {
  readonly headers: Record<string, string | string[] | undefined> & { [PROXIED]?: ProxiedRequest }
}

/** Statuses by reason, where a client of a proxy expects another one than 502. */
const statuses: Readonly<Record<string, number>> = {
  deadline_exceeded: 504,
  attempt_timeout: 504,
  overloaded: 503,
  internal: 500,
}

/**
 * `/proxy/{server}/*`: plain HTTP to a server whose entry says `passthrough: true`, below the folder of its (first) URL:
 * `/proxy/a/x` is `http://host/base/x` for `http://host/base/mcp`. The gateway does not look at the content, so no policy and no
 * filter of tools acts on it; limits, deadline, TLS and headers of the operator hold, and nothing is sent twice.
 */
export async function registerPassthrough(app: FastifyInstance, parts: PassthroughParts): Promise<void> {
  const { live, clock, log, load } = parts
  const { calls } = parts.quotas
  const letIn = new WeakMap<FastifyRequest, ProxiedRequest>()

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
    const proxied = new ProxiedRequest({ way, server: name, path: path.path, limits, clock })
    letIn.set(request, proxied)
    load.inFlight++
    calls.take(client)
    server.retain()
    reply.raw.once('close', () => {
      load.inFlight--
      calls.release(client)
      proxied.end()
      server.release()
    })
    done()
  }

  const proxiedOf = (request: FastifyRequest): ProxiedRequest => {
    const proxied = letIn.get(request)
    if (proxied === undefined) throw new Error('a request that was not let in')
    return proxied
  }

  function failed(reply: FastifyReply, error: Error & { readonly statusCode?: number }): void {
    const failure = letIn.get(reply.request)?.failure
    if (failure !== undefined) return answer(reply, failure)
    const status = error.statusCode ?? 500
    if (status < 500) return refuse(reply, status, error.message)
    log.error({ err: error }, 'a request met a defect of the gateway')
    answer(reply, gatewayError('internal', 'internal error', { sent: true }))
  }

  app.addHook('onRequest', admit)
  app.addHook('preHandler', (request, _, done) => {
    if (request.body !== undefined) request.body = proxiedOf(request).limitedBody(request.raw)
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
        const proxied = proxiedOf(request as FastifyRequest)
        const { host: _, ...rest } = headers as WithProxied['headers']
        return { ...proxied.requestHeaders(rest), [PROXIED]: proxied } as typeof headers
      },
    },
  })
}

function send(options: WithProxied, done: (error: Error | null, reply?: object) => void): void {
  const { method, path, body, headers } = options
  const proxied = headers[PROXIED]
  if (proxied === undefined) throw new Error('a request that was not let in')
  const query = path.indexOf('?')
  proxied.send({ method, body: body ?? null, headers }, query === -1 ? '' : path.slice(query), done)
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

/** Closes the connection where the rest of a body, or another protocol, would be taken for the next request. */
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
    .send({ error: message, code: stableCode(reason), sent })
}

export interface ProxiedRequestLimits {
  /** Largest request body, in bytes. */
  readonly maxBody: number
  /** Largest reply body, in bytes. */
  readonly maxReply: number
  /** How long all of it may take; undefined: as long as bytes flow. */
  readonly deadlineMs: Millis | undefined
}

export interface ProxiedRequestParts {
  readonly way: PlainHttp
  /** The server's name in the registry. */
  readonly server: string
  /** Behind the server's folder; without a query. */
  readonly path: string
  readonly limits: ProxiedRequestLimits
  readonly clock: Clock
}

/** Why a proxied request failed; `status`: if that does not follow from the reason. */
type Failure = GatewayError & { readonly status?: number }

const bodyTooLarge = (bytes: number, sent: boolean): Failure => ({
  ...gatewayError('overloaded', `the body is larger than ${bytes} bytes (gateway.maxBody)`, { sent }),
  status: 413,
})

/** A request as reply-from hands it over. */
interface Handed {
  readonly method: Dispatcher.HttpMethod
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: Exclude<Dispatcher.RequestOptions['body'], undefined>
}

type Done = (error: Error | null, reply?: object) => void

/** Headers of the agent that are for the gateway, and never for a server. */
const ours = new Set(['authorization', 'cookie', 'mcp-session-id', 'origin'])

/** One request to a server by plain HTTP, and its reply, within their limits. */
class ProxiedRequest {
  readonly #parts: ProxiedRequestParts
  readonly #abort = new AbortController()
  readonly #cancel: () => void
  #failure: Failure | undefined

  /** Its time begins now, and ends with `end`. */
  constructor(parts: ProxiedRequestParts) {
    this.#parts = parts
    const { deadlineMs } = parts.limits
    this.#cancel =
      deadlineMs === undefined
        ? () => undefined
        : parts.clock.after(deadlineMs, () => {
            const message = `not over within the deadline of ${formatDuration(deadlineMs)}`
            this.#fail(gatewayError('deadline_exceeded', message, { sent: true }))
          })
  }

  /** Why it failed; undefined as long as it did not. */
  get failure(): Failure | undefined {
    return this.#failure
  }

  /** Cancels the deadline, and the request if nobody waits for its reply any more. Safe to call twice. */
  end(): void {
    this.#cancel()
    this.#fail(gatewayError('cancelled', 'the agent has gone', { sent: true }))
  }

  /** The body of the agent's request, within the limit. */
  limitedBody(body: Readable): Readable {
    const { maxBody } = this.#parts.limits
    return limited(body, maxBody, () => this.#fail(bodyTooLarge(maxBody, true)))
  }

  /** The headers for the server, of those that came: the operator's win. */
  requestHeaders(headers: Handed['headers']): Record<string, string | string[]> {
    return { ...withoutHop(headers, ours), ...this.#parts.way.headers }
  }

  /** Sends it once, `query` with its question mark: what may have run is not sent again. */
  send({ method, headers, body }: Handed, query: string, done: Done): void {
    const { way, path } = this.#parts
    if (this.#failure !== undefined) return done(new Error(this.#failure.message))
    const { signal } = this.#abort
    const request = { method, path: way.folder + path + query, headers: { ...headers }, body, signal }
    way.pool.request(request, (error, reply) => {
      if (error !== null) {
        this.#fail(plainHttpError(error))
        return done(error)
      }
      // Dropped below for whatever reason, it says so to nobody.
      reply.body.on('error', ignore)
      const failure = method === 'HEAD' ? undefined : this.#tooLarge(reply.headers['content-length'])
      if (failure !== undefined) {
        this.#fail(failure)
        reply.body.destroy()
        return done(new Error(failure.message))
      }
      const { maxReply } = this.#parts.limits
      const stream = limited(reply.body, maxReply, () => this.#fail(replyTooLarge(maxReply)))
      done(null, { statusCode: reply.statusCode, headers: this.#replyHeaders(reply.headers), body: stream })
    })
  }

  #tooLarge(length: string | string[] | undefined): GatewayError | undefined {
    const { maxReply } = this.#parts.limits
    return Number(length) > maxReply ? replyTooLarge(maxReply) : undefined
  }

  #replyHeaders(headers: Handed['headers']): Record<string, string | string[]> {
    const kept = withoutHop(headers)
    if (typeof kept.location === 'string') kept.location = this.#locationOf(kept.location)
    return kept
  }

  /** Where a redirection leads as the agent has to ask for it; what lies elsewhere stays as it is. */
  #locationOf(location: string): string {
    const { way, path, server } = this.#parts
    const here = way.origin + way.folder + path
    if (!URL.canParse(location, here)) return location
    const { origin, pathname, search, hash } = new URL(location, here)
    if (origin !== way.origin || !pathname.startsWith(way.folder)) return location
    return `/proxy/${encodeURIComponent(server)}/${pathname.slice(way.folder.length)}${search}${hash}`
  }

  /** The first failure is the one that counts. */
  #fail(failure: Failure): void {
    if (this.#failure !== undefined) return
    this.#failure = failure
    this.#abort.abort(new Error(failure.message))
  }
}

const replyTooLarge = (bytes: number) =>
  gatewayError('reply_too_large', `the reply is larger than ${bytes} bytes (maxReply)`, { sent: true })

/** Headers without those of one connection, those that `connection` names, and `others`. */
function withoutHop(headers: Handed['headers'], others: ReadonlySet<string> = new Set()) {
  const named = new Set(
    [headers.connection ?? []]
      .flat()
      .flatMap((value) => value.split(','))
      .map((name) => name.trim().toLowerCase()),
  )
  const kept: Record<string, string | string[]> = {}
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !hopByHop.has(name) && !named.has(name) && !others.has(name))
      kept[name] = value
  return kept
}

/** The same bytes, up to so many; past them `exceeded` is told, and the stream ends in an error. */
function limited(source: Readable, maxBytes: number, exceeded: () => void): Readable {
  let bytes = 0
  const gate = new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length
      if (bytes <= maxBytes) return done(null, chunk)
      source.unpipe(gate)
      exceeded()
      done(new Error(`more than ${maxBytes} bytes`))
    },
  })
  gate.on('error', ignore)
  // By hand: `pipeline` would destroy an agent's request, and with it the socket for our answer.
  source.once('error', (error) => gate.destroy(error))
  source.once('close', () => {
    if (!source.readableEnded) gate.destroy(new Error('it broke off'))
  })
  gate.once('close', () => {
    if (!(source instanceof IncomingMessage)) source.destroy()
  })
  return source.pipe(gate)
}

function ignore(): void {}

/** Matches the part behind `/proxy/{server}` in a request's target, which has to be a path: a target may be a whole URL. */
const TARGET = /^\/proxy\/[^/?#]+(\/[^?#]*)?(\?[^#]*)?$/

/** How often a path may be encoded. */
const MAX_ROUNDS = 4

export type ProxyPath =
  { readonly ok: true; readonly path: string } | { readonly ok: false; readonly why: string }

/**
 * The path that a request asks for below a server's folder, without its leading slash; `target`: as it came.
 * A path that servers read in more than one way is refused: nobody knows which reading this server takes.
 */
function proxyPathOf(target: string): ProxyPath {
  const match = TARGET.exec(target)
  if (match === null) return refused('expected /proxy/{server}/path as the target of the request')
  const path = match[1] ?? '/'
  // Characters other than visible ASCII have to be encoded, and encoded bytes have to be text.
  if (/[^\x21-\x7e]/.test(path) || !isEncoded(path)) return refused('the path is not encoded as one')
  const segments = path.split('/').length
  let text = path
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if (/[\0-\x1f\x7f]/.test(text)) return refused('there is a control character in the path')
    if (text.includes('\\')) return refused('there is a backslash in the path')
    if (text.split('/').length !== segments) return refused('there is an encoded slash in the path')
    if (text.includes('//')) return refused('there is an empty segment in the path')
    // Some servers take what follows a semicolon for a parameter of the segment.
    if (text.split('/').some((segment) => /^\.\.?(;|$)/.test(segment)))
      return refused('there is a segment "." or ".." in the path')
    const plain = decoded(text)
    if (plain === text) return { ok: true, path: path.slice(1) }
    text = plain
  }
  return refused('the path is encoded over and over')
}

const refused = (why: string): ProxyPath => ({ ok: false, why })

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch (error) {
    if (error instanceof URIError) return false
    throw error
  }
}

/** Each byte that is encoded as a character of its own; a % that encodes nothing stays, as lenient servers have it. */
const decoded = (text: string) =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
