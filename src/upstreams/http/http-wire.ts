import { type Dispatcher, Pool } from 'undici'
import type { HttpServerConfig } from '../../config/schema/server-schema.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import type { WireShape } from '../../mesh/wire-shape.ts'
import { LARGE_TEXT } from '../../mesh/work.ts'
import { connectorOf } from '../../wire/connector.ts'
import { allHeaders, inSlices } from './calls.ts'
import { type Pools, readTls } from './http-pools.ts'
import { type Conceal, concealingGiven } from '../server-words.ts'
import { type HttpReply, transportError } from './http-reply.ts'

export interface WireOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent for every request; a message's own header of the same name wins. */
  readonly agent: Readonly<Record<string, string>> | undefined
}

const ofPost: readonly string[] = [
  'content-type',
  'application/json',
  'accept',
  'application/json, text/event-stream',
]

/** The parts shared by an upstream session's successive MCP sessions. */
interface Target extends Pools {
  readonly url: string
  readonly path: string
  readonly configured: readonly string[]
  readonly agent: Readonly<Record<string, string>> | undefined
}

/**
 * Sends the HTTP requests of a session. Immutable, so a sender still knows its session after a new session has opened.
 */
export class HttpWire {
  /** Undefined before `initialize`, and for servers without sessions. */
  readonly sessionId: string | undefined
  readonly #target: Target
  /** The headers of a POST, passed on uncopied: `ofPost`, then the headers of every request. */
  readonly #headers: string[]

  /**
   * Returns a wire without a session. `pools.calls` serves short requests, `pools.streams` serves requests with open
   * streams.
   */
  static to({ url, headers, agent }: WireOptions, pools: Pools): HttpWire {
    const { pathname, search, username, password } = new URL(url)
    const configured = [...Object.entries(headers).flat(), ...basicAuth(username, password)]
    const target = { ...pools, url, path: pathname + search, configured, agent }
    return new HttpWire(target, undefined, ofPost.concat(configured))
  }

  private constructor(endpoint: Target, sessionId: string | undefined, headers: string[]) {
    this.#target = endpoint
    this.sessionId = sessionId
    this.#headers = headers
  }

  /** Returns a wire to the same endpoint with this session, if any, and this protocol version. */
  inSession(sessionId: string | undefined, version: string): HttpWire {
    const session = sessionId === undefined ? [] : ['mcp-session-id', sessionId]
    // Uses `concat`: the array lives as long as the session, and an array from a spread reserves extra room.
    const headers = ofPost.concat('mcp-protocol-version', version, session, this.#target.configured)
    return new HttpWire(this.#target, sessionId, headers)
  }

  /**
   * Returns a function that removes all header values and URLs of this wire from a server's texts; `own`: further
   * headers.
   */
  concealing(own: Readonly<Record<string, string>> = {}): Conceal {
    const { url, configured, agent } = this.#target
    // The protocol's headers only repeat parts of the request, and are no secret.
    const told = Object.entries(own).filter(([name]) => !/^mcp-/i.test(name))
    const named: Record<string, string> = { ...agent, ...Object.fromEntries(told) }
    for (let at = 0; at < configured.length; at += 2)
      named[configured[at] as string] = configured[at + 1] as string
    // The session id gives access to the session.
    if (this.sessionId !== undefined) named['mcp-session-id'] = this.sessionId
    return concealingGiven({ named, urls: [url] })
  }

  /** Posts a message; `own`: headers of the agent for this message only. With `shapes`, uses a separate connection. */
  post(
    body: string,
    own: Readonly<Record<string, string>> | undefined,
    reply: HttpReply,
    shapes?: readonly WireShape[],
  ): void {
    const more = this.#ofAgent(own)
    const { calls, shaped } = this.#target
    this.#send(reply, (path) => {
      if (shapes !== undefined && shaped !== undefined) {
        const all = inSlices(body, allHeaders({ headers: this.#headers, more }))
        shaped.dispatch({ method: 'POST', path, ...all }, reply, shapes)
      } else calls.dispatch({ method: 'POST', path, headers: this.#headers, more, body }, reply)
    })
  }

  /** Posts a message without an answer, over sockets apart from calls; for errors see `OneWayPosts.dispatch`. */
  postOneWay(
    sender: object,
    body: string,
    own: Readonly<Record<string, string>> | undefined,
    reply: HttpReply,
  ): () => void {
    const { oneWay, path } = this.#target
    const request = (path: string): Dispatcher.DispatchOptions => {
      const headers = this.#withAgent(this.#headers, own)
      return {
        method: 'POST',
        path,
        ...(body.length < LARGE_TEXT ? { headers, body } : inSlices(body, headers)),
      }
    }
    // The sender's turn lasts until the last redirect has its reply.
    this.#follow(reply, (path) => oneWay.dispatchAgain(request(path), reply))
    return oneWay.dispatch(sender, body.length, () => request(path), reply)
  }

  /** Posts a message with a long-lived stream as reply. */
  subscribe(
    body: string,
    own: Readonly<Record<string, string>>,
    reply: HttpReply,
    shapes?: readonly WireShape[],
  ): void {
    const headers = this.#withAgent(this.#headers, own)
    this.#stream({ method: 'POST', headers, body }, reply, shapes)
  }

  /** Opens the session's event stream, or resumes behind `lastEventId`. */
  listen(lastEventId: string | undefined, reply: HttpReply, shapes?: readonly WireShape[]): void {
    // The header is in UTF-8 (WHATWG HTML, section 9.2.3); as Latin-1, each of its bytes is one character.
    const resume =
      lastEventId === undefined ? [] : ['last-event-id', Buffer.from(lastEventId, 'utf8').toString('latin1')]
    const headers = this.#withAgent(['accept', 'text/event-stream', ...resume, ...this.#common()])
    this.#stream({ method: 'GET', headers }, reply, shapes)
  }

  #stream(
    request: Omit<Dispatcher.DispatchOptions, 'path'>,
    reply: HttpReply,
    shapes: readonly WireShape[] | undefined,
  ): void {
    const { streams, shapedStreams } = this.#target
    this.#send(reply, (path) => {
      if (shapes === undefined || shapedStreams === undefined) streams.dispatch({ ...request, path }, reply)
      else shapedStreams.dispatch({ ...request, path }, reply, shapes)
    })
  }

  /** The endpoint's path with its query. */
  get path(): string {
    return this.#target.path
  }

  /** Sends a request to the endpoint's path, and to each redirect target of the same origin. */
  #send(reply: HttpReply, send: (path: string) => void): void {
    this.#follow(reply, send)
    send(this.#target.path)
  }

  /**
   * Follows redirects only within the configured origin: no other origin may get the headers of the gateway and of
   * agents.
   */
  #follow(reply: HttpReply, send: (path: string) => void): void {
    reply.followBy((location) => {
      const { url } = this.#target
      const to = URL.canParse(location, url) ? new URL(location, url) : undefined
      return to?.origin === new URL(url).origin ? () => send(to.pathname + to.search) : undefined
    })
  }

  /** Ends the session at the server. */
  leave(reply: HttpReply): void {
    const [headers, more] = [this.#common(), this.#ofAgent()]
    const { calls } = this.#target
    this.#send(reply, (path) => void calls.dispatch({ method: 'DELETE', path, headers, more }, reply))
  }

  /** The headers of every request. */
  #common(): string[] {
    return this.#headers.slice(ofPost.length)
  }

  #withAgent(headers: string[], own?: Readonly<Record<string, string>>): string[] {
    return allHeaders({ headers, more: this.#ofAgent(own) })
  }

  /** Returns the headers of the agent, with those for one message. */
  #ofAgent(own?: Readonly<Record<string, string>>): string[] | undefined {
    const { agent } = this.#target
    if (own === undefined && agent === undefined) return undefined
    // Copies in loops, because this runs for every traced call: spreads and `Object.entries` cost ten times as much.
    const all: string[] = []
    for (const name in agent) if (own === undefined || !Object.hasOwn(own, name)) all.push(name, agent[name]!)
    for (const name in own) all.push(name, own[name]!)
    return all
  }
}

/** Returns the `Authorization` header for the credentials in a URL; empty without credentials. */
function basicAuth(username: string, password: string): string[] {
  if (username === '' && password === '') return []
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return ['authorization', `Basic ${Buffer.from(credentials).toString('base64')}`]
}

/** A server reached by plain HTTP, with its paths in and below the folder of its MCP endpoint. */
export interface PlainHttp {
  readonly origin: string
  /** Begins and ends with a slash: `/` for `http://host/mcp`, `/base/` for `http://host/base/mcp`. */
  readonly folder: string
  /** The operator's headers for every request; names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Separate from the sockets for calls, so no call waits. */
  readonly pool: Pool
}

/**
 * Returns a server for plain HTTP requests; of several replicas, the first. Opens sockets on demand and closes idle
 * sockets.
 */
export function openPlainHttp(config: HttpServerConfig): PlainHttp {
  const { urls, headers, connections, timeouts, tls, maxReply } = config
  const url = new URL(urls[0] as string)
  const [, credentials] = basicAuth(url.username, url.password)
  const configured = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])
  return {
    origin: url.origin,
    folder: new URL('.', url).pathname,
    headers: {
      ...(credentials === undefined ? {} : { authorization: credentials }),
      ...(Object.fromEntries(configured) as Record<string, string>),
    },
    pool: new Pool(url.origin, {
      connections,
      pipelining: 1,
      headersTimeout: timeouts.idle,
      bodyTimeout: timeouts.idle,
      maxResponseSize: maxReply,
      connect: connectorOf({ timeout: timeouts.connect, ...readTls(tls) }),
    }),
  }
}

/** Codes for replies that Node, undici or reply-from cannot read or pass on as HTTP. */
const notHttp =
  /^(HPE_|HTTPParserError|UND_ERR_HEADERS_OVERFLOW|UND_ERR_RES_CONTENT_LENGTH_MISMATCH|FST_REPLY_FROM_BAD_GATEWAY|ERR_ASSERTION)/

/** Returns the error of a failed plain request, which may have run unless no connection existed. */
export function plainHttpError(cause: Error & { readonly code?: string }): GatewayError {
  if (cause.code === 'UND_ERR_CONNECT_TIMEOUT')
    return gatewayError('attempt_timeout', 'no connection to the server in time (timeouts.connect)')
  const code = cause.code ?? cause.name
  if (notHttp.test(code))
    return gatewayError('bad_reply', `the reply is not valid HTTP (${code})`, { sent: true })
  const unsent = transportError(cause, false)
  return unsent.reason === 'upstream_unavailable' ? unsent : transportError(cause, true)
}
