import type { Pools } from './http-pools.ts'
import type { HttpReply } from './http-reply.ts'

export interface WireOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent: they go with every request, unless a message has its own of the same name. */
  readonly agent: Readonly<Record<string, string>> | undefined
}

/** What all sessions of one conversation share. */
interface Endpoint extends Pools {
  readonly path: string
  readonly configured: readonly string[]
  readonly agent: Readonly<Record<string, string>> | undefined
}

/**
 * The HTTP requests of one session, with the headers that each of them needs. Immutable: whoever has sent something over
 * it can tell later in which session that was, whatever has been opened since.
 */
export class HttpWire {
  /** Undefined before `initialize`, and for servers that keep no session. */
  readonly sessionId: string | undefined
  readonly #endpoint: Endpoint
  readonly #common: readonly string[]
  readonly #post: string[]

  /** The wire of no session. `calls` serves requests that end, `streams` those that stay open. */
  static to({ url, headers, agent }: WireOptions, { calls, streams }: Pools): HttpWire {
    const { pathname, search, username, password } = new URL(url)
    const configured = [...Object.entries(headers).flat(), ...basicAuth(username, password)]
    const endpoint = { path: pathname + search, calls, streams, configured, agent }
    return new HttpWire(endpoint, undefined, configured)
  }

  private constructor(endpoint: Endpoint, sessionId: string | undefined, common: readonly string[]) {
    this.#endpoint = endpoint
    this.sessionId = sessionId
    this.#common = common
    this.#post = postHeaders(common)
  }

  /** The wire to the same endpoint whose requests name this session, if any, and this protocol version. */
  inSession(sessionId: string | undefined, version: string): HttpWire {
    const session = sessionId === undefined ? [] : ['mcp-session-id', sessionId]
    const common = ['mcp-protocol-version', version, ...session, ...this.#endpoint.configured]
    return new HttpWire(this.#endpoint, sessionId, common)
  }

  /** Posts one message; `own` are headers of the agent that came with it. */
  post(body: string, own: Readonly<Record<string, string>> | undefined, reply: HttpReply): void {
    const headers = this.#withAgent(this.#post, own)
    const { calls, path } = this.#endpoint
    calls.dispatch({ method: 'POST', path, headers, body }, reply)
  }

  /** Posts a message whose reply is a stream that stays open. */
  subscribe(body: string, own: Readonly<Record<string, string>>, reply: HttpReply): void {
    const headers = this.#withAgent(this.#post, own)
    const { streams, path } = this.#endpoint
    streams.dispatch({ method: 'POST', path, headers, body }, reply)
  }

  /** Opens the event stream of the session, or resumes one behind `lastEventId`. */
  listen(lastEventId: string | undefined, reply: HttpReply): void {
    // In UTF-8 (WHATWG HTML, section 9.2.3), of which HTTP sees the single bytes.
    const resume =
      lastEventId === undefined ? [] : ['last-event-id', Buffer.from(lastEventId, 'utf8').toString('latin1')]
    const headers = this.#withAgent(['accept', 'text/event-stream', ...resume, ...this.#common])
    const { streams, path } = this.#endpoint
    streams.dispatch({ method: 'GET', path, headers }, reply)
  }

  /** Ends the session at the server. */
  leave(reply: HttpReply): void {
    const headers = this.#withAgent([...this.#common])
    const { calls, path } = this.#endpoint
    calls.dispatch({ method: 'DELETE', path, headers }, reply)
  }

  #withAgent(headers: string[], own?: Readonly<Record<string, string>>): string[] {
    const { agent } = this.#endpoint
    if (own === undefined && agent === undefined) return headers
    // By hand: done for every traced call, and spreads and entries cost ten times as much.
    const all = headers.slice()
    for (const name in agent) if (own === undefined || !Object.hasOwn(own, name)) all.push(name, agent[name]!)
    for (const name in own) all.push(name, own[name]!)
    return all
  }
}

/** Credentials in a URL, as HTTP sends them. */
export function basicAuth(username: string, password: string): string[] {
  if (username === '' && password === '') return []
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return ['authorization', `Basic ${Buffer.from(credentials).toString('base64')}`]
}

function postHeaders(common: readonly string[]): string[] {
  return ['content-type', 'application/json', 'accept', 'application/json, text/event-stream', ...common]
}
