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

/** The guards of the connections of a server. */
export interface ServerGuards {
  readonly quotas: Pick<Quotas, 'connections' | 'pipelined' | 'refused'>
  /** Replies that wait for clients which do not read them. */
  readonly unread: Pick<UnreadReplies, 'wrote'>
}

/**
 * Most requests of one connection that wait for the reply to an earlier one. Hardly any client sends the next request
 * before it has the reply to the last one, and those that do send a few. Whoever sends more is cut off instead of made
 * to wait: of a connection that is not read nobody hears that its client has left. Node stops reading by itself only
 * when the replies that wait have 16 KiB, and not before it is done with the 64 KiB of requests that came at once.
 */
export const MAX_PIPELINED = 64

/** The HTTP server of a plane, which neither keeps more connections nor more of their requests and replies than it may. */
export function createBoundedServer(listener: RequestListener, { quotas, unread }: ServerGuards): Server {
  class Reply extends ServerResponse {
    /**
     * From the first sign of the end on each reply is the last one of its connection, unless others wait behind it, whose calls may have
     * run: who goes on there would hold up the drain.
     */
    override writeHead(status: number, reason?: unknown, headers?: unknown): this {
      if (!server.listening && !queues.isQueued(this.req.socket)) this.shouldKeepAlive = false
      return super.writeHead(status, reason as string, headers as OutgoingHttpHeaders)
    }

    /** Notices a client that does not read, whatever answers a request, and however small the answer. */
    override end(chunk?: unknown, encoding?: unknown, done?: unknown): this {
      // Nobody has begun to read its body, which may be on its way.
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
      // Node goes on with what came together, also when the connection was closed because of a part of it.
      if (request.socket.destroyed) return
      // A response that has the socket is in front: nothing else is under way on its connection.
      if (response.socket === null && !queues.take(request.socket, response)) return
      answer(request, response)
    }
  // A request that Node would answer by itself waits behind other requests, too, and is counted with them.
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
  server.prependListener('connection', (socket: Socket) => limitConnection(socket, quotas.connections))
  return server
}

/** How long the rest of a body that nobody reads may take, in milliseconds. */
const UNREAD_MS = 2_000

/**
 * A request is answered whose body nobody has read. Node goes on reading and throws it away, however long it is: such a connection ends, at
 * once if the body comes in chunks, each of which costs CPU whatever is in it.
 */
function leaveUnread(request: IncomingMessage): void {
  if (request.complete) return
  if (request.headers['transfer-encoding'] !== undefined) return request.socket.destroySoon()
  const cancel = systemClock.after(UNREAD_MS, () => request.socket.destroy())
  request.once('end', cancel).once('close', cancel)
}

/**
 * Has a server take no new connections, and says when the last one has ended. By its own `close`, Node at once ends connections that it
 * takes for idle: also those whose last reply is on its way.
 */
export function stopListening(server: Server, ended: () => void): void {
  NetServer.prototype.close.call(server, ended)
}

/** Whether a request names the host that it is for as it has to (RFC 9112, section 3.2): once, or not at all in HTTP/1.0. Of several, Node shows the first. */
function namesHost({ httpVersionMajor, httpVersionMinor, rawHeaders }: IncomingMessage): boolean {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!
    if (name.length === 4 && name.toLowerCase() === 'host') count++
  }
  return count === 1 || (count === 0 && !(httpVersionMajor === 1 && httpVersionMinor === 1))
}

/** Closes a connection at once when there are too many: an answer would cost more than it, and would have to be read. */
function limitConnection(socket: Socket, connections: Quota): void {
  const client = clientOf(socket.remoteAddress)
  if (connections.refusal(client) !== undefined) return void socket.destroy()
  connections.take(client)
  socket.once('close', () => connections.release(client))
}

/**
 * Closes a connection, and ends the reading of what came together with the last request. Node would make objects of all
 * of it, a thousand requests and more for each of many connections, and everybody else would wait until it has.
 */
function cutOff(socket: Socket): void {
  const { parser } = socket as Socket & { readonly parser?: { onIncoming: () => number } | null }
  // 2 stands for an upgrade: what follows is no HTTP, and is not read as such.
  if (parser) parser.onIncoming = () => 2
  socket.destroy()
}

/** The responses of a connection that wait for earlier ones. */
interface Queue {
  readonly client: string
  readonly responses: Set<ServerResponse>
}

/**
 * Responses that wait for earlier ones of their connection. They hear of its end here: Node closes only the one in front;
 * those behind it would wait for ever, and with them their calls and streams.
 */
class Queues {
  readonly #quotas: ServerGuards['quotas']
  readonly #queues = new WeakMap<Socket, Queue>()

  constructor(quotas: ServerGuards['quotas']) {
    this.#quotas = quotas
  }

  /** Whether responses wait on a connection for the one in front. */
  isQueued(socket: Socket): boolean {
    return (this.#queues.get(socket)?.responses.size ?? 0) > 0
  }

  /** False when there are too many: then the connection is closed. */
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
      // Node 24 closes them by itself: those have left the queue by then.
      void nextTurn().then(() => {
        for (const response of responses) response.emit('close')
      })
    })
    return queue
  }
}

/** Whether a `Host` header may be served: this is what stops DNS rebinding. */
export function allowsHost(
  header: string | undefined,
  listenHost: string,
  allowed: readonly string[],
): boolean {
  const host = header === undefined ? undefined : hostOf(header)
  if (host === undefined) return false
  if (isLoopback(host) || [listenHost, ...allowed].some((name) => hostOf(name) === host)) return true
  // Behind a public address the operator's names are unknown unless given; browsers are stopped by their Origin, and by
  // `Sec-Fetch-Site` (see `isOfAnotherSite`) where they send none.
  return allowed.length === 0 && !isLoopback(hostOf(listenHost) ?? listenHost)
}

/** Whether a `Host` header is allowed is remembered for so many of them; for others it is worked out again. */
const REMEMBERED = 64

/** `allowsHost` for one list of names, with a memory: the same few headers come with every request. */
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

/** Whether the page that a browser shows may call: pages of this machine, and those that the operator names. */
export function allowsOrigin(header: string | undefined, allowed: readonly string[]): boolean {
  if (header === undefined) return true
  if (allowed.some((origin) => origin.toLowerCase() === header.toLowerCase())) return true
  const host = hostnameOf(header)
  return host !== undefined && isLoopback(host)
}

type Headers = Readonly<Record<string, string | string[] | undefined>>

/** Whether a browser asks on behalf of a page of another origin than the one it asks. */
export function isCrossOrigin(headers: Headers): boolean {
  const { origin, host } = headers
  if (isOfAnotherSite(headers)) return true
  return (
    typeof origin === 'string' && origin !== `http://${String(host)}` && origin !== `https://${String(host)}`
  )
}

/**
 * Whether a browser says that a page of another origin made it ask. Images, scripts, forms and links do so without an
 * `Origin`, which is why that alone does not tell.
 */
export function isOfAnotherSite({ 'sec-fetch-site': site }: Headers): boolean {
  return site === 'cross-site' || site === 'same-site'
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** A request that stops faults and does nothing else: it asks for no more than reading does. */
    readonly stops?: boolean
    /** The status of a request that lacks the token; 401 unless it says otherwise. */
    readonly unauthorized?: number
  }
}

export interface ControlAccess {
  readonly token: string
  /** Whether whoever reaches the plane may read without the token, and stop faults. */
  readonly openToRead: boolean
}

/** Demands the control token, as a bearer token. */
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

/** Compares a bearer token in constant time, whatever the lengths. The name of the scheme has no case (RFC 9110, section 11.1). */
export function hasToken(authorization: string | undefined, token: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  const [, given] = /^bearer (.*)$/is.exec(authorization ?? '') ?? []
  return given !== undefined && timingSafeEqual(digest(given), digest(token))
}

/** The host of `host` or `host:port`, in the one way in which it can be compared. */
function hostOf(name: string): string | undefined {
  // Other parts of a URL, such as a user, are no part of a host.
  if (/[@/?#\\]/.test(name)) return undefined
  // An address to listen on has no brackets.
  return hostnameOf(`http://${isIPv6(name) ? `[${name}]` : name}`)
}

function hostnameOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '').toLowerCase() : undefined
}

/** The headers of a reply that a page may read, besides the body and the headers that every page may read. */
const EXPOSED = 'Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Breakwater-Faults'

const METHODS = 'GET, POST, DELETE'

/** How long a browser need not ask again, in seconds: a reload may take a page's right away. */
const MAX_AGE_S = '600'

/** Names of headers as a browser lists them. */
const HEADER_NAMES = /^[\w-]+(?: *, *[\w-]+){0,99}$/

/**
 * Tells a browser that the page of `origin`, which is allowed to call, may read the reply to its request (Fetch standard,
 * section 3.3: CORS protocol). No cookies and no other credentials that a browser would add by itself. True when the request was
 * a preflight, which is answered by that.
 */
export function shareWith(origin: string, request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('access-control-allow-origin', origin)
  response.setHeader('access-control-expose-headers', EXPOSED)
  // A reply that a cache keeps for one page must not go to another page.
  response.setHeader('vary', 'Origin')
  const { headers, method } = request
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false
  const asked = headers['access-control-request-headers']
  response.writeHead(204, {
    'access-control-allow-methods': METHODS,
    // A page that may call may send what any other agent may.
    ...(asked !== undefined && HEADER_NAMES.test(asked) ? { 'access-control-allow-headers': asked } : {}),
    'access-control-max-age': MAX_AGE_S,
  })
  response.end()
  return true
}
