import { Pool } from 'undici'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import {
  errorText,
  INVALID_REQUEST,
  isObject,
  isRequestId,
  kindOf,
  paramsOf,
  PARSE_ERROR,
  parseJson,
  type RequestId,
} from '../../protocol/jsonrpc.ts'
import { encodeHeaderValue, PROTOCOL_VERSION_KEY } from '../../protocol/modern.ts'
import { HttpListener } from '../../upstreams/http/http-listener.ts'
import { leave } from '../../upstreams/http/http-post.ts'
import { HttpReply } from '../../upstreams/http/http-reply.ts'
import { HttpWire } from '../../upstreams/http/http-wire.ts'
import type { Overlong } from '../../upstreams/stdio/lines.ts'
import { Exchange } from './exchange.ts'

interface BridgeParts {
  /** The MCP endpoint that the lines go to. */
  readonly url: string
  readonly clock: Clock
  /** Longest message either way, in bytes. */
  readonly maxMessage: number
  /** Takes a line for the client; a promise asks to wait. */
  readonly write: (line: string) => Promise<void> | undefined
}

/** How long the endpoint may take to let the session go, in milliseconds. */
const LEAVE_MS: Millis = 500

/** Carries the messages of a client over stdio, a line each, to an endpoint of Streamable HTTP, and back. */
export class Bridge {
  readonly #parts: BridgeParts
  readonly #pool: Pool
  /** The wire of no session. */
  readonly #bare: HttpWire
  #wire: HttpWire
  readonly #underWay = new Map<Exchange, HttpReply>()
  #listener: HttpListener | undefined
  #quiet: () => void = () => undefined

  constructor(parts: BridgeParts) {
    this.#parts = parts
    // How long a reply may take is for the mesh to say.
    this.#pool = new Pool(new URL(parts.url).origin, { headersTimeout: 0, bodyTimeout: 0 })
    const { url } = parts
    const pools = { calls: this.#pool, streams: this.#pool }
    this.#bare = HttpWire.to({ url, headers: {}, agent: undefined }, pools)
    this.#wire = this.#bare
  }

  /** Takes a line of the client. A promise asks it to wait, so that what has to stay in order does. */
  take(line: string | Overlong): Promise<void> | undefined {
    const said = readLine(line, this.#parts.maxMessage)
    if (typeof said === 'string') return this.#parts.write(said)
    if (said === undefined || typeof line !== 'string') return undefined
    if (said.messages.some(({ method }) => method === 'initialize')) return this.#initialize(line, said)
    const isModern = this.#wire.sessionId === undefined
    const [first] = said.messages
    if (isModern && first !== undefined && said.messages.length === 1 && this.#takesBack(first))
      return undefined
    const exchange = this.#post(line, said)
    // What asks for nothing may be what those behind it build upon.
    return exchange.ids.size > 0 ? undefined : exchange.over
  }

  /** Resolves when no request waits for its reply, or after `limitMs`. */
  settled(limitMs: Millis): Promise<void> {
    if (this.#underWay.size === 0) return Promise.resolve()
    return new Promise((resolve) => {
      const cancel = this.#parts.clock.after(limitMs, resolve)
      this.#quiet = () => {
        cancel()
        resolve()
      }
    })
  }

  /** Gives up what is under way, and ends the session. */
  async close(): Promise<void> {
    for (const reply of this.#underWay.values()) reply.abort(gatewayError('cancelled', 'the client has gone'))
    await this.#leave()
    await this.#pool.destroy()
  }

  async #leave(): Promise<void> {
    this.#listener?.close()
    if (this.#wire.sessionId !== undefined) await leave(this.#wire, this.#parts.clock, LEAVE_MS)
  }

  /** Nothing else can be said before a session is open. */
  async #initialize(line: string, said: Said): Promise<void> {
    await this.#leave()
    this.#wire = this.#bare
    await this.#post(line, said).over
  }

  #post(line: string, { messages, ids }: Said): Exchange {
    const exchange = new Exchange(ids, {
      write: this.#parts.write,
      onSession: (id, version) => this.#open(id, version),
    })
    const reply = new HttpReply(exchange, { maxReply: this.#parts.maxMessage })
    this.#underWay.set(exchange, reply)
    void exchange.over.then(() => {
      this.#underWay.delete(exchange)
      if (this.#underWay.size === 0) this.#quiet()
    })
    this.#wire.post(line, modernHeaders(messages[0]), reply)
    return exchange
  }

  /**
   * Without a session there are no notifications: over HTTP, a client of the modern era takes a request back by
   * hanging up. True when the message needs not be sent.
   */
  #takesBack(message: Said['messages'][number]): boolean {
    if (kindOf(message) !== 'notification') return false
    const { requestId } = paramsOf(message)
    if (message.method !== 'notifications/cancelled' || !isRequestId(requestId)) return true
    for (const [exchange, reply] of this.#underWay) {
      if (!exchange.ids.delete(requestId)) continue
      reply.abort(gatewayError('cancelled', 'the client took it back'))
    }
    return true
  }

  /** Resolves when what the server says on its own would arrive. */
  async #open(id: string, version: string): Promise<void> {
    const wire = this.#bare.inSession(id, version)
    this.#wire = wire
    const { clock, maxMessage: maxReply, write } = this.#parts
    this.#listener = new HttpListener({
      clock,
      maxReply,
      wire: () => wire,
      receive: (data) => void write(data),
      ready: () => Promise.resolve(),
      // The client finds out with its next message: there is nothing more to listen to.
      isLost: () => Promise.resolve(false),
    })
    await this.#listener.opening
  }
}

/** What a client said on one line: a message, or several as a batch. */
interface Said {
  readonly messages: readonly Readonly<Record<string, unknown>>[]
  /** Of the requests among them: each wants an answer. */
  readonly ids: Set<RequestId>
}

/** Reads a line of a client; the text of an error when it says nothing, and undefined when it is empty. */
export function readLine(line: string | Overlong, limit: number): Said | string | undefined {
  if (typeof line !== 'string')
    return errorText(null, INVALID_REQUEST, `a message is larger than ${limit} bytes`)
  if (line.trim() === '') return undefined
  const value = parseJson(line)
  if (value === undefined) return errorText(null, PARSE_ERROR, 'Parse error: the line is not JSON')
  const messages = (Array.isArray(value) ? value : [value]).filter(isObject)
  const ids = messages.flatMap(({ id, method }) => (method !== undefined && isRequestId(id) ? [id] : []))
  return { messages, ids: new Set(ids) }
}

/** Parameters that name what a request is about. */
const names = ['name', 'uri', 'taskId'] as const

/**
 * The headers by which a request of the modern era repeats over HTTP what stands in its body; undefined for one of
 * the legacy era.
 */
export function modernHeaders(
  message: Readonly<Record<string, unknown>> | undefined,
): Record<string, string> | undefined {
  if (message === undefined || typeof message.method !== 'string') return undefined
  const params = paramsOf(message)
  const version = isObject(params._meta) ? params._meta[PROTOCOL_VERSION_KEY] : undefined
  if (typeof version !== 'string') return undefined
  const name = names.map((key) => params[key]).find((value) => typeof value === 'string')
  return {
    'mcp-protocol-version': encodeHeaderValue(version),
    'mcp-method': encodeHeaderValue(message.method),
    ...(typeof name === 'string' && { 'mcp-name': encodeHeaderValue(name) }),
  }
}
