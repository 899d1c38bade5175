import type { Pool } from 'undici'
import type { Pools } from './http-pools.ts'
import type { HttpReply } from './http-reply.ts'

export interface WireOptions {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
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
  #sessionId: string | undefined
  #common: readonly string[]
  #post: string[]

  constructor({ url, headers }: WireOptions, { calls, streams }: Pools) {
    const { pathname, search, username, password } = new URL(url)
    this.#path = pathname + search
    this.#calls = calls
    this.#streams = streams
    this.#configured = [...Object.entries(headers).flat(), ...basicAuth(username, password)]
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

  /** Posts one message; `extra` headers win over configured ones of another name only. */
  post(body: string, extra: Readonly<Record<string, string>> | undefined, reply: HttpReply): void {
    this.#calls.dispatch({ method: 'POST', path: this.#path, headers: this.#with(extra), body }, reply)
  }

  /** Posts a message whose reply is a stream that stays open. */
  subscribe(body: string, extra: Readonly<Record<string, string>>, reply: HttpReply): void {
    this.#streams.dispatch({ method: 'POST', path: this.#path, headers: this.#with(extra), body }, reply)
  }

  #with(extra: Readonly<Record<string, string>> | undefined): string[] {
    if (extra === undefined) return this.#post
    const headers = [...this.#post]
    for (const name in extra) headers.push(name, extra[name] as string)
    return headers
  }

  /** Opens the event stream of the session, or resumes one behind `lastEventId`. */
  listen(lastEventId: string | undefined, reply: HttpReply): void {
    const resume = lastEventId === undefined ? [] : ['last-event-id', lastEventId]
    const headers = ['accept', 'text/event-stream', ...resume, ...this.#common]
    this.#streams.dispatch({ method: 'GET', path: this.#path, headers }, reply)
  }

  /** Ends the session at the server. */
  leave(reply: HttpReply): void {
    this.#calls.dispatch({ method: 'DELETE', path: this.#path, headers: [...this.#common] }, reply)
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
