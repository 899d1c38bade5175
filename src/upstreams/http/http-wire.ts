import type { Pool } from 'undici'
import type { Pools } from './http-pools.ts'
import type { HttpReply } from './http-reply.ts'

export interface WireOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent: they go with every request, unless a message has its own of the same name. */
  readonly agent: Readonly<Record<string, string>> | undefined
}

/**
 * The HTTP requests of one conversation, with the headers that each of them needs. Knows the session,
 * and nothing of what is said in it.
 */
export class HttpWire {
  readonly #path: string
  readonly #calls: Pool
  readonly #streams: Pool
  readonly #configured: readonly string[]
  readonly #agent: Readonly<Record<string, string>> | undefined
  #sessionId: string | undefined
  #common: readonly string[]
  #post: string[]

  /** `calls` serves requests that end, `streams` those that stay open. */
  constructor({ url, headers, agent }: WireOptions, { calls, streams }: Pools) {
    const { pathname, search, username, password } = new URL(url)
    this.#path = pathname + search
    this.#calls = calls
    this.#streams = streams
    this.#configured = [...Object.entries(headers).flat(), ...basicAuth(username, password)]
    this.#agent = agent
    this.#common = this.#configured
    this.#post = postHeaders(this.#common)
  }

  get sessionId(): string | undefined {
    return this.#sessionId
  }

  /** From here on every request names this session and protocol version. */
  adopt(sessionId: string | undefined, version: string): void {
    this.#sessionId = sessionId
    const session = sessionId === undefined ? [] : ['mcp-session-id', sessionId]
    this.#common = ['mcp-protocol-version', version, ...session, ...this.#configured]
    this.#post = postHeaders(this.#common)
  }

  /** Forgets the session, as before `initialize`. */
  reset(): void {
    this.#sessionId = undefined
    this.#common = this.#configured
    this.#post = postHeaders(this.#common)
  }

  /** Posts one message; `own` are headers of the agent that came with it. */
  post(body: string, own: Readonly<Record<string, string>> | undefined, reply: HttpReply): void {
    const headers = this.#withAgent(this.#post, own)
    this.#calls.dispatch({ method: 'POST', path: this.#path, headers, body }, reply)
  }

  /** Posts a message whose reply is a stream that stays open. */
  subscribe(body: string, own: Readonly<Record<string, string>>, reply: HttpReply): void {
    const headers = this.#withAgent(this.#post, own)
    this.#streams.dispatch({ method: 'POST', path: this.#path, headers, body }, reply)
  }

  /** Opens the event stream of the session, or resumes one behind `lastEventId`. */
  listen(lastEventId: string | undefined, reply: HttpReply): void {
    const resume = lastEventId === undefined ? [] : ['last-event-id', lastEventId]
    const headers = this.#withAgent(['accept', 'text/event-stream', ...resume, ...this.#common])
    this.#streams.dispatch({ method: 'GET', path: this.#path, headers }, reply)
  }

  /** Ends the session at the server. */
  leave(reply: HttpReply): void {
    const headers = this.#withAgent([...this.#common])
    this.#calls.dispatch({ method: 'DELETE', path: this.#path, headers }, reply)
  }

  #withAgent(headers: string[], own?: Readonly<Record<string, string>>): string[] {
    const agent = this.#agent
    if (own === undefined && agent === undefined) return headers
    // By hand: done for every traced call, and spreads and entries cost ten times as much.
    const all = headers.slice()
    for (const name in agent) if (own === undefined || !Object.hasOwn(own, name)) all.push(name, agent[name]!)
    for (const name in own) all.push(name, own[name]!)
    return all
  }
}

/** Credentials in a URL, as HTTP sends them. */
function basicAuth(username: string, password: string): string[] {
  if (username === '' && password === '') return []
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  return ['authorization', `Basic ${Buffer.from(credentials).toString('base64')}`]
}

function postHeaders(common: readonly string[]): string[] {
  return ['content-type', 'application/json', 'accept', 'application/json, text/event-stream', ...common]
}
