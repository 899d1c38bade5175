import { createHash, timingSafeEqual } from 'node:crypto'
import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestListener,
  type Server,
  ServerResponse,
} from 'node:http'
import { isIPv6, Server as NetServer, type Socket } from 'node:net'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isLoopback } from '../../units/address.ts'
import { clientOf, type Quota, type Quotas } from '../limits/quotas.ts'
import type { UnreadReplies } from './unread-replies.ts'
import { nextTurn, systemClock } from '../../mesh/clock.ts'

export interface ServerGuards {
  readonly quotas: Pick<Quotas, 'connections' | 'pipelined' | 'refused'>
  readonly unread: Pick<UnreadReplies, 'wrote'>
}

/**
 * Most pipelined requests of one connection. Few clients pipeline, and these clients send a few requests. The server
 * closes a connection with more requests; on a paused connection, the server would not notice that the client has left.
 * Node pauses a connection only when waiting replies have 16 KiB, and only after handling the 64 KiB of requests that
 * came at once.
 */
export const MAX_PIPELINED = 64

/**
 * Creates the reader of new connections, for a server that does not read them itself at first. `handOver` gives a
 * connection to the server.
 */
export type ReaderOf = (server: Server, handOver: (socket: Socket) => void) => (socket: Socket) => void

/**
 * Creates the HTTP server of a plane, which limits its connections, requests and replies. `readerOf`: reads new
 * connections before the server.
 */
export function createBoundedServer(
  listener: RequestListener,
  { quotas, unread }: ServerGuards,
  readerOf?: ReaderOf,
): Server {
  class Reply extends ServerResponse {
    /**
     * After the shutdown has begun, closes the connection after this reply, because further requests would delay the
     * drain. Keeps the connection open while pipelined replies wait, because their calls may have run.
     */
    override writeHead(status: number, reason?: unknown, headers?: unknown): this {
      if (!server.listening && !queues.isQueued(this.req.socket)) this.shouldKeepAlive = false
      return super.writeHead(status, reason as string, headers as OutgoingHttpHeaders)
    }

    /** Tells `UnreadReplies` about a reply that the connection has not accepted yet: the client may not read. */
    override end(chunk?: unknown, encoding?: unknown, done?: unknown): this {
      // No code has begun to read the body, and the body may still arrive.
      if (!this.req.complete && this.req.readableFlowing === null)
        this.once('finish', () => leaveUnread(this.req))
      super.end(chunk, encoding as BufferEncoding, done as () => void)
      if (this.writableLength > 0) unread.wrote(this)
      return this
    }
  }
  const queues = new Queues(quotas)
  const bounded =
    (answer: RequestListener): RequestListener =>
    (request, response) => {
      // Ignores requests on a closed connection: Node still passes on all requests of the same socket read.
      if (request.socket.destroyed) return
      // Only the first response of a connection has the socket. Other responses join the queue.
      if (response.socket === null && !queues.take(request.socket, response)) return
      answer(request, response)
    }
  // Handles `Expect` requests too, which Node would answer itself, so that they also count in the queue.
  const server = createServer(
    { ServerResponse: Reply, requireHostHeader: false },
    bounded((request, response) => {
      if (!namesHost(request)) response.writeHead(400, { connection: 'close' }).end()
      else listener(request, response)
    }),
  )
  server.on(
    'checkExpectation',
    bounded((_, response) => void response.writeHead(417).end()),
  )
  const limit = (socket: Socket) => limitConnection(socket, quotas.connections)
  if (readerOf === undefined) return server.prependListener('connection', limit)
  const [read] = server.listeners('connection') as [(socket: Socket) => void]
  const readFirst = readerOf(server, (socket) => read.call(server, socket))
  return server.off('connection', read).on('connection', (socket: Socket) => {
    limit(socket)
    if (!socket.destroyed) readFirst(socket)
  })
}

/** Time limit for the rest of an unread body, in milliseconds. */
const UNREAD_MS = 2_000

/**
 * Closes the connection of a request that was answered without reading its body: at once for a chunked body, because
 * each chunk costs CPU. Node alone would read and discard a body of any length.
 */
function leaveUnread(request: IncomingMessage): void {
  if (request.complete) return
  if (request.headers['transfer-encoding'] !== undefined) return request.socket.destroySoon()
  const cancel = systemClock.after(UNREAD_MS, () => request.socket.destroy())
  request.once('end', cancel).once('close', cancel)
}

/**
 * Makes a server accept no new connections, and calls `ended` after the last connection closed. Node's own `close`
 * immediately ends connections it considers idle, including some whose last reply is still being sent.
 */
export function stopListening(server: Server, ended: () => void): void {
  NetServer.prototype.close.call(server, ended)
}

/**
 * True when a request has exactly one `Host` header, or none in HTTP/1.0 (RFC 9112, section 3.2). Reads the raw
 * headers, because Node's parsed headers contain only the first `Host`.
 */
function namesHost({ httpVersionMajor, httpVersionMinor, rawHeaders }: IncomingMessage): boolean {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!
    if (name.length === 4 && name.toLowerCase() === 'host') count++
  }
  return count === 1 || (count === 0 && !(httpVersionMajor === 1 && httpVersionMinor === 1))
}

/** Closes a new connection without an answer when there are too many; an answer would cost more than the connection. */
function limitConnection(socket: Socket, connections: Quota): void {
  const client = clientOf(socket.remoteAddress)
  if (connections.refusal(client) !== undefined) return void socket.destroy()
  connections.take(client)
  socket.once('close', () => connections.release(client))
}

/**
 * Closes a connection and stops parsing its received data. Otherwise Node would create a thousand or more request
 * objects for each such connection, and block the event loop meanwhile.
 */
function cutOff(socket: Socket): void {
  const { parser } = socket as Socket & { readonly parser?: { onIncoming: () => number } | null }
  // The return value 2 means an upgrade, after which Node parses no further HTTP.
  if (parser) parser.onIncoming = () => 2
  socket.destroy()
}

/** The responses of a connection that wait for earlier responses. */
interface Queue {
  readonly client: string
  readonly responses: Set<ServerResponse>
}

/**
 * Queues of responses that wait for earlier responses of their connection. When a connection closes, emits `close` for
 * its waiting responses. Node closes only the first response; the others, with their calls and streams, would wait
 * forever.
 */
class Queues {
  readonly #quotas: ServerGuards['quotas']
  readonly #queues = new WeakMap<Socket, Queue>()

  constructor(quotas: ServerGuards['quotas']) {
    this.#quotas = quotas
  }

  /** True when responses wait behind the first response of a connection. */
  isQueued(socket: Socket): boolean {
    return (this.#queues.get(socket)?.responses.size ?? 0) > 0
  }

  /** Adds a response to the queue. When too many responses wait, closes the connection and returns false. */
  take(socket: Socket, response: ServerResponse): boolean {
    const { pipelined, refused } = this.#quotas
    const { client, responses } = this.#queues.get(socket) ?? this.#begin(socket)
    const isLong = responses.size >= MAX_PIPELINED
    if (isLong) refused('pipelined_per_connection')
    if (isLong || pipelined.refusal(client) !== undefined) {
      cutOff(socket)
      return false
    }
    responses.add(response)
    pipelined.take(client)
    const leave = () => {
      if (responses.delete(response)) pipelined.release(client)
    }
    response.once('socket', leave)
    response.once('close', leave)
    return true
  }

  #begin(socket: Socket): Queue {
    const responses = new Set<ServerResponse>()
    const queue = { client: clientOf(socket.remoteAddress), responses }
    this.#queues.set(socket, queue)
    socket.once('close', () => {
      for (const response of responses) response.destroy()
      // Waits a turn, because Node 24 closes some responses itself, and these then leave the queue.
      void nextTurn().then(() => {
        for (const response of responses) response.emit('close')
      })
    })
    return queue
  }
}

/** True when a `Host` header is allowed. This check prevents DNS rebinding. */
export function allowsHost(
  header: string | undefined,
  listenHost: string,
  allowed: readonly string[],
): boolean {
  const host = header === undefined ? undefined : hostOf(header)
  if (host === undefined) return false
  if (isLoopback(host) || [listenHost, ...allowed].some((name) => hostOf(name) === host)) return true
  // On a public address any name is allowed unless the operator configures names. There the checks of `Origin` and
  // `Sec-Fetch-Site` (see `isOfAnotherSite`) stop foreign web pages.
  return allowed.length === 0 && !isLoopback(hostOf(listenHost) ?? listenHost)
}

/** Most `Host` headers with a cached result. */
const REMEMBERED = 64

/** Returns `allowsHost` for a fixed list of names, with a cache, because requests repeat the same few headers. */
export function hostGuard(
  listenHost: string,
  allowed: readonly string[],
): (header: string | undefined) => boolean {
  const remembered = new Map<string | undefined, boolean>()
  return (header) => {
    let isAllowed = remembered.get(header)
    if (isAllowed !== undefined) return isAllowed
    isAllowed = allowsHost(header, listenHost, allowed)
    if (remembered.size < REMEMBERED) remembered.set(header, isAllowed)
    return isAllowed
  }
}

/**
 * True when a web page of this origin may send requests: a page of this machine, or of an origin that the operator
 * allows.
 */
export function allowsOrigin(header: string | undefined, allowed: readonly string[]): boolean {
  if (header === undefined) return true
  if (allowed.some((origin) => origin.toLowerCase() === header.toLowerCase())) return true
  const host = hostnameOf(header)
  return host !== undefined && isLoopback(host)
}

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** True when a browser sent the request for a page of another origin. */
export function isCrossOrigin(headers: Headers): boolean {
  const { origin, host } = headers
  if (isOfAnotherSite(headers)) return true
  return (
    typeof origin === 'string' && origin !== `http://${String(host)}` && origin !== `https://${String(host)}`
  )
}

/**
 * True when `Sec-Fetch-Site` says that a page of another origin caused the request. Browsers send no `Origin` for
 * images, scripts, forms and links, so a check of `Origin` is not enough.
 */
export function isOfAnotherSite({ 'sec-fetch-site': site }: Headers): boolean {
  return site === 'cross-site' || site === 'same-site'
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True for a route that only stops faults; it needs no more rights than reading. */
    readonly stops?: boolean
    /** The status for a request without the token; default 401. */
    readonly unauthorized?: number
  }
}

export interface ControlAccess {
  readonly token: string
  /** True when reading and stopping faults need no token. */
  readonly openToRead: boolean
}

/** Refuses requests without the control token as a bearer token. */
export function demandToken(app: FastifyInstance, { token, openToRead }: ControlAccess): void {
  app.addHook('onRequest', (request, reply, done) => {
    if ((openToRead && changesNothing(request)) || hasToken(request.headers.authorization, token))
      return done()
    void reply
      .code(request.routeOptions.config.unauthorized ?? 401)
      .header('www-authenticate', 'Bearer')
      .send({ error: 'unauthorized: send the control token as a bearer token' })
  })
}

function changesNothing({ method, is404, routeOptions }: FastifyRequest): boolean {
  return is404 || method === 'GET' || method === 'HEAD' || routeOptions.config.stops === true
}

/**
 * True when the header has the bearer token. Compares in constant time; the scheme name is case-insensitive (RFC 9110,
 * section 11.1).
 */
export function hasToken(authorization: string | undefined, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  const [, given] = /^bearer (.*)$/is.exec(authorization ?? '') ?? []
  return given !== undefined && timingSafeEqual(digest(given), digest(token))
}

/** Returns the host of `host` or `host:port` in normal form, for comparisons. */
function hostOf(name: string): string | undefined {
  // Refuses names with other parts of a URL, such as a user.
  if (/[@/?#\\]/.test(name)) return undefined
  // Adds brackets to an IPv6 address, because a listen address has none.
  return hostnameOf(`http://${isIPv6(name) ? `[${name}]` : name}`)
}

function hostnameOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '').toLowerCase() : undefined
}

/** Reply headers that an allowed page may read, in addition to the headers that browsers always show. */
const EXPOSED = 'Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Breakwater-Faults'

const METHODS = 'GET, POST, DELETE'

/** Time for which a browser caches a preflight, in seconds; short, because a reload may change the allowed pages. */
const MAX_AGE_S = '600'

/** A list of header names as browsers send it. */
const HEADER_NAMES = /^[\w-]+(?: *, *[\w-]+){0,99}$/

/**
 * Sets the CORS headers by which a page of `origin` may read the reply (Fetch standard, section 3.3). Allows no cookies
 * and no other credentials added by the browser. Answers a preflight and returns true; returns false for other
 * requests.
 */
export function shareWith(origin: string, request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('access-control-allow-origin', origin)
  response.setHeader('access-control-expose-headers', EXPOSED)
  // Keeps caches from sending a reply for one page to another page.
  response.setHeader('vary', 'Origin')
  const { headers, method } = request
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false
  const asked = headers['access-control-request-headers']
  response.writeHead(204, {
    'access-control-allow-methods': METHODS,
    // An allowed page may send the same headers as other agents.
    ...(asked !== undefined && HEADER_NAMES.test(asked) ? { 'access-control-allow-headers': asked } : {}),
    'access-control-max-age': MAX_AGE_S,
  })
  response.end()
  return true
}
