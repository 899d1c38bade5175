import { gatewayErrorText } from '../../downstream/respond.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
import { isObject, isRequestId, parseJson, type RequestId } from '../../protocol/jsonrpc.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import type { ReplyHeaders } from '../../upstreams/http/http-headers.ts'
import type { ReplySink } from '../../upstreams/http/http-reply.ts'

interface ExchangeParts {
  /** Takes a line for the client; a promise asks to wait. */
  readonly write: (line: string) => Promise<void> | undefined
  /** Told of the session that a reply opens; what the client is told waits for it. */
  readonly onSession: (id: string, version: string) => Promise<void>
}

/** Most of a body that is no JSON-RPC that the client is told, in characters. */
const SHOWN = 200

/** The reply to one POST, line by line. A client over stdio knows no status: each request gets an answer or an error. */
export class Exchange implements ReplySink {
  /** Requests that have no answer yet. */
  readonly ids: Set<RequestId>
  /** Resolves when nothing more comes. */
  readonly over: Promise<void>
  readonly #parts: ExchangeParts
  #end: () => void = () => undefined
  #broken = false

  constructor(ids: Set<RequestId>, parts: ExchangeParts) {
    this.ids = ids
    this.#parts = parts
    this.over = new Promise((resolve) => (this.#end = resolve))
  }

  opened(): void {}

  event({ data }: SseEvent): Promise<void> | undefined {
    return data === '' ? undefined : this.#pass(data, parseJson(data))
  }

  body(status: number, headers: ReplyHeaders, text: string): void {
    const value = parseJson(text)
    const session = headers.get('mcp-session-id')
    if (session !== undefined && status === 200 && isObject(value)) {
      const version = isObject(value.result) ? value.result.protocolVersion : undefined
      if (typeof version === 'string')
        return void this.#parts.onSession(session, version).then(() => this.#finish(status, text, value))
    }
    this.#finish(status, text, value)
  }

  ended(): void {
    const words = this.#broken ? 'the reply is not JSON' : 'the stream ended without an answer'
    this.#giveUp(gatewayError('upstream_disconnected', words, { sent: true }))
  }

  failed(error: GatewayError): void {
    this.#giveUp(error)
  }

  #finish(status: number, text: string, value: unknown): void {
    if (isAnonymousError(value) && this.ids.size > 0) {
      // Who refuses a request before reading it does not know whose it is.
      for (const id of this.ids) void this.#parts.write(JSON.stringify({ ...value, id }))
      this.ids.clear()
    } else if (isObject(value) ? 'jsonrpc' in value : Array.isArray(value)) void this.#pass(text, value)
    const words = text === '' ? '' : `: ${text.slice(0, SHOWN)}`
    this.#giveUp(gatewayError('upstream_refused', `HTTP ${status} without an answer${words}`, { sent: true }))
  }

  /** Hands on what the server said; what is no JSON would break the client's reading. */
  #pass(text: string, value: unknown): Promise<void> | undefined {
    if (value === undefined) {
      this.#broken = true
      return undefined
    }
    for (const message of Array.isArray(value) ? value : [value]) {
      if (isObject(message) && message.method === undefined && isRequestId(message.id))
        this.ids.delete(message.id)
    }
    // Within JSON, line breaks stand only between tokens.
    return this.#parts.write(text.replace(/[\r\n]+/g, ' '))
  }

  #giveUp(error: GatewayError): void {
    for (const id of this.ids) void this.#parts.write(gatewayErrorText(id, error, {}))
    this.ids.clear()
    this.#end()
  }
}

function isAnonymousError(value: unknown): value is Record<string, unknown> {
  return isObject(value) && isObject(value.error) && (value.id === null || value.id === undefined)
}
