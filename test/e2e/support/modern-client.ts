import { EventReader } from './event-reader.ts'
import type { Json } from './gateway.ts'
import { post, type RawReply } from './raw-client.ts'

const VERSION = '2026-07-28'
const PREFIX = 'io.modelcontextprotocol/'

/** What a request says of its sender; `capabilities` are those that it claims. */
export function metaOf(capabilities: Json = {}): Json {
  return {
    [`${PREFIX}protocolVersion`]: VERSION,
    [`${PREFIX}clientInfo`]: { name: 'modern', version: '1' },
    [`${PREFIX}clientCapabilities`]: capabilities,
  }
}

/** A client of the modern era that sends what it is told to, and checks nothing. */
export class ModernClient {
  readonly url: string
  readonly meta: Json
  #ids = 0

  constructor(url: string, capabilities: Json = {}) {
    this.url = url
    this.meta = metaOf(capabilities)
  }

  /** A complete request under an id of its own. */
  request(method: string, params: Json = {}): Json {
    return { jsonrpc: '2.0', id: this.#ids++, method, params: { ...params, _meta: this.meta } }
  }

  /** Posts a body with the headers that belong to it, and with others in their place. */
  post(body: Json, headers: Readonly<Record<string, string>> = {}): Promise<RawReply> {
    return post(this.url, JSON.stringify(body), { ...headersOf(body), ...headers })
  }

  ask(method: string, params: Json = {}): Promise<RawReply> {
    return this.post(this.request(method, params))
  }

  call(name: string, args: Json = {}, more: Json = {}): Promise<RawReply> {
    return this.ask('tools/call', { name, arguments: args, ...more })
  }

  /** Posts a request, and reads the reply as it comes. */
  stream(method: string, params: Json = {}): Promise<EventReader> {
    const body = this.request(method, params)
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
    const init = { method: 'POST', body: JSON.stringify(body), headers: { ...headers, ...headersOf(body) } }
    return EventReader.open(this.url, init)
  }

  /** Opens a subscription, and waits until it is acknowledged. */
  async listen(notifications: Json): Promise<EventReader> {
    const reader = await this.stream('subscriptions/listen', { notifications })
    await reader.next(
      'it is acknowledged',
      ({ method }) => method === 'notifications/subscriptions/acknowledged',
    )
    return reader
  }
}

/** The headers that repeat what a request says. */
export function headersOf({ method, params }: Json): Record<string, string> {
  const name = (params as Json | undefined)?.name
  return {
    'mcp-protocol-version': VERSION,
    'mcp-method': String(method),
    ...(typeof name === 'string' ? { 'mcp-name': name } : {}),
  }
}

/** The error of a reply. */
export function errorOf({ messages }: RawReply): { code: number; message: string; data: Json } {
  return messages[0]?.error as ReturnType<typeof errorOf>
}
