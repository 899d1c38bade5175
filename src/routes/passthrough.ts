import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import proxy from '@fastify/http-proxy'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { DecoratorHandler, type Dispatcher } from 'undici'
import { hopByHop } from '../config/schema/header-schema.ts'
import { clientOf, type Quotas } from '../downstream/limits/quotas.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
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
  /** Calls in progress; the drain waits until this falls to 0. */
  readonly load: { inFlight: number }
  /** The quota of calls, which counts plain HTTP requests as well. */
  readonly quotas: Pick<Quotas, 'calls'>
}

/** The key under which a request's headers hold its `ProxiedRequest`: reply-from passes only headers on to `send`. */
const PROXIED = Symbol('proxied')

type Headers = Readonly<Record<string, string | string[] | undefined>>

type Done = (error: Error | null, reply: Dispatcher.ResponseData<null>) => void

type WithProxied = Dispatcher.RequestOptions & { readonly headers: Headers & { [PROXIED]?: ProxiedRequest } }

/** HTTP status by reason, for reasons with another status than 502. */
const statuses: Readonly<Record<string, number>> = {
  deadline_exceeded: 504,
  attempt_timeout: 504,
  overloaded: 503,
  internal: 500,
}

/**
 * Registers `/proxy/{server}/*`: plain HTTP to a server with `passthrough: true`, below the folder of its (first) URL.
 * With the URL `http://host/base/mcp` for server `a`, `/proxy/a/x` is `http://host/base/x`. The gateway does not read
 * the content, so policies and tool filters have no effect. Limits, deadline, TLS and the operator's headers apply. The
 * gateway never sends a request twice.
 */
export async function registerPassthrough(app: FastifyInstance, parts: PassthroughParts): Promise<void> {
  const { live, clock, log, load } = parts
  const { calls } = parts.quotas
  const letIn = new WeakMap<FastifyRequest, ProxiedRequest>()

  /** Checks a request before its body is read. Sends the refusal, if any. */
  function admit(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
    const { config, servers, mesh } = live.current
    const { maxBody } = config.gateway
    const { server: name = '' } = request.params as { server?: string }
    const server = servers.get(name)
    const way = server?.plainHttp
    if (server === undefined || way === undefined)
      return refuse(reply, 404, 'no such server, or its entry does not say passthrough: true')
    if (request.headers.upgrade !== undefined)
      return refuse(reply, 501, 'protocol upgrades, such as WebSocket, are not supported here')
    const target = TARGET.exec(request.raw.url ?? '')
    const path = target?.[1] ?? '/'
    const fault =
      target === null ? 'expected /proxy/{server}/path as the target of the request' : faultIn(path)
    if (fault !== undefined) return refuse(reply, 400, fault)
    if (['GET', 'HEAD'].includes(request.method) && hasBody(request))
      return refuse(reply, 400, `a ${request.method} request must not have a body`)
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
    const deadlineMs = deadlineIn(chain)
    const proxied = new ProxiedRequest({ way, server: name, path, maxBody, maxReply, deadlineMs, clock })
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
    if (proxied === undefined) throw new Error('the request was not admitted (a bug in Breakwater)')
    return proxied
  }

  function failed(reply: FastifyReply, error: Error & { readonly statusCode?: number }): void {
    const failure = letIn.get(reply.request)?.failure
    if (failure !== undefined) return answer(reply, failure)
    const status = error.statusCode ?? 500
    if (status < 500) return refuse(reply, status, error.message)
    log.error({ err: error }, 'internal error while handling a request (a bug in Breakwater)')
    answer(reply, gatewayError('internal', 'internal error', { sent: true }))
  }

  app.addHook('onRequest', admit)
  app.addHook('preHandler', (request, _, done) => {
    const body = proxiedOf(request).limited(request.raw)
    if (request.body !== undefined) request.body = Readable.from(body, { objectMode: false })
    done()
  })
  app.setErrorHandler((error: Error & { statusCode?: number }, _, reply) => failed(reply, error))
  // Removes the parsers, so that text too is passed on as unchanged bytes.
  app.removeAllContentTypeParsers()
  await app.register(proxy, {
    prefix: '/proxy/:server',
    upstream: '',
    httpMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
    internalRewriteLocationHeader: false,
    disableRequestLogging: true,
    retryMethods: [],
    // Sends over the server's own sockets. The default pool would ignore the server's settings, and would not check
    // certificates.
    undici: { request: send as Dispatcher['request'] },
    // Passes a dummy path, because reply-from would parse the path as a URL and change it; `send` sets the real path.
    handler: (_, reply, __, options) => reply.from('/', options),
    replyOptions: {
      getUpstream: (request) => proxiedOf(request as FastifyRequest).parts.way.origin,
      rewriteRequestHeaders: (request, headers) => {
        const proxied = proxiedOf(request as FastifyRequest)
        const kept = { ...withoutHop(headers, ours), ...proxied.parts.way.headers }
        return { ...kept, [PROXIED]: proxied } as typeof headers
      },
      rewriteHeaders: (headers, request) =>
        proxiedOf(request as FastifyRequest).replyHeaders(headers as Headers),
      onResponse: (request, reply, { stream }) => {
        const proxied = proxiedOf(request as FastifyRequest)
        stream.on('error', (error) => proxied.brokenOff(error))
        const { maxReply } = proxied.parts
        const isTooLarge = request.method !== 'HEAD' && Number(reply.getHeader('content-length')) > maxReply
        if (!isTooLarge) return void reply.send(stream)
        proxied.fail(replyTooLarge(maxReply))
        answer(reply as FastifyReply, replyTooLarge(maxReply))
      },
      onError: (reply, { error }) => {
        proxiedOf(reply.request as FastifyRequest).brokenOff((error.cause ?? error) as Error)
        failed(reply as FastifyReply, error)
      },
    },
  })
}

/**
 * Sends a request once over the server's sockets. Never repeats the request, because the server may have acted on it.
 * Ends the wait for a connection when `signal` aborts, because undici obeys `signal` only on an open connection.
 */
function send({ headers, path, ...options }: WithProxied, done: Done): void {
  const proxied = headers[PROXIED]
  if (proxied === undefined) throw new Error('the request was not admitted (a bug in Breakwater)')
  const { way, path: own } = proxied.parts
  // Replaces the dummy path `/` by the real path; a query may follow.
  const whole = way.folder + own.slice(1) + path.slice(1)
  const { signal } = proxied
  let isOver = false
  const over: Done = (error, reply) => {
    if (isOver) return
    isOver = true
    done(error, reply)
  }
  signal.addEventListener('abort', () => over(signal.reason as Error, undefined as never), { once: true })
  way.pool
    .compose((dispatch) => (sent, handler) => dispatch(sent, new SendingHandler(handler, proxied)))
    .request({ ...options, headers, path: whole, signal }, over)
}

/** Returns the deadline of a chain of policies, in milliseconds; undefined without a deadline. */
function deadlineIn(
  chain: readonly { readonly layer: string; readonly config?: unknown }[],
): number | undefined {
  const config = chain.find(({ layer }) => layer === 'deadline')?.config
  return isObject(config) && typeof config.total === 'number' ? config.total : undefined
}

const hasBody = ({ headers }: FastifyRequest) =>
  'transfer-encoding' in headers || Number(headers['content-length'] ?? 0) > 0

/** Refuses a request that was sent to no server. */
function refuse(reply: FastifyReply, status: number, error: string): void {
  closeAfter(reply)
  void reply.code(status).send({ error, sent: false })
}

/**
 * Closes the connection after the reply if unread bytes follow. Node would read the rest of a body, or of another
 * protocol, as the next request.
 */
function closeAfter(reply: FastifyReply): void {
  const { request } = reply
  const isLeft = hasBody(request) && !request.raw.complete
  if (isLeft || request.headers.upgrade !== undefined) void reply.header('connection', 'close')
}

/** Answers with an error of the gateway. First removes the headers of a reply that has begun. */
function answer(reply: FastifyReply, { reason, message, sent, status }: Failure): void {
  for (const name of Object.keys(reply.getHeaders())) if (name !== 'retry-after') reply.removeHeader(name)
  closeAfter(reply)
  void reply
    .code(status ?? statuses[reason] ?? 502)
    .type('application/json')
    .send({ error: message, code: stableCode(reason), sent })
}

interface ProxiedRequestParts {
  readonly way: PlainHttp
  readonly server: string
  /** The path below the server's folder, with a leading slash, without a query. */
  readonly path: string
  /** Largest request body, in bytes. */
  readonly maxBody: number
  /** Largest reply body, in bytes. */
  readonly maxReply: number
  /** Time limit for request and reply together; undefined: any duration while bytes flow. */
  readonly deadlineMs: Millis | undefined
  readonly clock: Clock
}

/** The error of a proxied request. `status` is set only if it differs from the status of the reason. */
type Failure = GatewayError & { readonly status?: number }

const bodyTooLarge = (bytes: number, sent: boolean): Failure => ({
  ...gatewayError('overloaded', `the body is larger than ${bytes} bytes (gateway.maxBody)`, { sent }),
  status: 413,
})

/** Headers that an agent sends to the gateway itself; never sent to a server. */
const ours = new Set(['authorization', 'cookie', 'host', 'mcp-session-id', 'origin'])

/** undici's `DecoratorHandler` with its methods, which are missing in undici's types. */
const Handler = DecoratorHandler as new (handler: Dispatcher.DispatchHandler) => {
  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void
}

/** Marks a request as sent when undici begins to write it to an open connection. */
class SendingHandler extends Handler {
  readonly #proxied: ProxiedRequest

  constructor(handler: Dispatcher.DispatchHandler, proxied: ProxiedRequest) {
    super(handler)
    this.#proxied = proxied
  }

  override onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    this.#proxied.isSent = true
    super.onRequestStart(controller, context)
  }
}

/** One plain HTTP request to a server, and its reply, within their limits. */
class ProxiedRequest {
  readonly parts: ProxiedRequestParts
  readonly #abort = new AbortController()
  readonly #cancel: Cancel | undefined
  /** True when any byte may have reached the server. */
  isSent = false
  #failure: Failure | undefined

  /** Starts the deadline; `end` cancels it. */
  constructor(parts: ProxiedRequestParts) {
    this.parts = parts
    const { clock, deadlineMs } = parts
    if (deadlineMs === undefined) return
    const message = `the request did not finish within the deadline of ${formatDuration(deadlineMs)}`
    const overdue = () => this.fail(gatewayError('deadline_exceeded', message, { sent: this.isSent }))
    this.#cancel = clock.after(deadlineMs, overdue)
  }

  /** The first failure; undefined until the request fails. */
  get failure(): Failure | undefined {
    return this.#failure
  }

  /** The signal that aborts with the first failure. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Cancels the deadline, and a request whose agent has disconnected. Safe to call twice. */
  end(): void {
    this.#cancel?.()
    this.fail(gatewayError('cancelled', 'the agent disconnected', { sent: true }))
  }

  /** Aborts the request with a failure; ignores further failures. */
  fail(failure: Failure): void {
    if (this.#failure !== undefined) return
    this.#failure = failure
    this.#abort.abort(new Error(failure.message))
  }

  /** Handles a failed connection to the server. */
  brokenOff(error: Error & { readonly code?: string }): void {
    const isTooLarge = error.code === 'UND_ERR_RES_EXCEEDED_MAX_SIZE'
    this.fail(isTooLarge ? replyTooLarge(this.parts.maxReply) : plainHttpError(error))
  }

  /** Yields the agent's request body within the limit. Keeps the agent's socket open for an answer. */
  async *limited(body: IncomingMessage): AsyncGenerator<Buffer> {
    let bytes = 0
    for await (const chunk of body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > this.parts.maxBody) this.fail(bodyTooLarge(this.parts.maxBody, true))
      this.signal.throwIfAborted()
      yield chunk
    }
  }

  /** Returns the reply headers for the agent. */
  replyHeaders(headers: Headers): Record<string, string | string[]> {
    const kept = withoutHop(headers)
    if (typeof kept.location === 'string') kept.location = this.#locationOf(kept.location)
    return kept
  }

  /** Returns the target of a redirection as a path of the gateway; a target elsewhere stays unchanged. */
  #locationOf(location: string): string {
    const { way, path, server } = this.parts
    const here = way.origin + way.folder + path.slice(1)
    if (!URL.canParse(location, here)) return location
    const { origin, pathname, search, hash } = new URL(location, here)
    if (origin !== way.origin || !pathname.startsWith(way.folder)) return location
    return `/proxy/${encodeURIComponent(server)}/${pathname.slice(way.folder.length)}${search}${hash}`
  }
}

const replyTooLarge = (bytes: number) =>
  gatewayError('reply_too_large', `the reply is larger than ${bytes} bytes (maxReply)`, { sent: true })

/** Returns the headers without hop-by-hop headers, headers named by `connection`, and headers in `others`. */
function withoutHop(headers: Headers, others: ReadonlySet<string> = new Set()) {
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

/** Matches the part behind `/proxy/{server}` in a request's target; a target that is a whole URL does not match. */
const TARGET = /^\/proxy\/[^/?#]+(\/[^?#]*)?(\?[^#]*)?$/

/** Most rounds of decoding. The last round must not change the path, so a path may be encoded up to three times. */
const MAX_ROUNDS = 4

/**
 * Returns the reason for refusing a path; undefined for a good path. Refuses paths that servers read in different ways,
 * because the gateway cannot know which way.
 */
function faultIn(path: string): string | undefined {
  // Only visible ASCII is allowed unencoded, and encoded bytes must be UTF-8.
  if (/[^\x21-\x7e]/.test(path) || !isEncoded(path)) return 'the path is not percent-encoded UTF-8'
  const segments = path.split('/').length
  let text = path
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if (/[\0-\x1f\x7f]/.test(text)) return 'there is a control character in the path'
    if (text.includes('\\')) return 'there is a backslash in the path'
    if (text.split('/').length !== segments) return 'there is an encoded slash in the path'
    if (text.includes('//')) return 'there is an empty segment in the path'
    // Also matches `.;` and `..;`, because some servers read text after a semicolon as a parameter of the segment.
    if (text.split('/').some((segment) => /^\.\.?(;|$)/.test(segment)))
      return 'there is a segment "." or ".." in the path'
    const plain = decoded(text)
    if (plain === text) return undefined
    text = plain
  }
  return 'the path is percent-encoded more than 3 times'
}

function isEncoded(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch (error) {
    if (error instanceof URIError) return false
    throw error
  }
}

/** Decodes each encoded byte to one character. A % that encodes nothing stays, as in lenient servers. */
const decoded = (text: string) =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
