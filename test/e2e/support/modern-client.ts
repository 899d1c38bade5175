import { EventReader } from './event-reader.ts'
import type { Json } from './gateway.ts'
import { post, type RawReply } from './raw-client.ts'

const VERSION = '2026-07-28'
const PREFIX = 'io.modelcontextprotocol/'

/** Returns the sender's description in a request; `capabilities` are the claimed capabilities. */
export function metaOf(capabilities: Json = {}): Json {
  return {
    [`${PREFIX}protocolVersion`]: VERSION,
    [`${PREFIX}clientInfo`]: { name: 'modern', version: '1' },
    [`${PREFIX}clientCapabilities`]: capabilities,
  }
}

/** A modern client that sends anything, unchecked. */
export class ModernClient {
  readonly url: string
  readonly meta: Json
  #ids = 0

  constructor(url: string, capabilities: Json = {}) {
    this.url = url
    this.meta = metaOf(capabilities)
  }

  request(method: string, params: Json = {}): Json {
    return { jsonrpc: '2.0', id: this.#ids++, method, params: { ...params, _meta: this.meta } }
  }

  /** Posts a body with matching headers; `headers` override them. */
  post(body: Json, headers: Readonly<Record<string, string>> = {}): Promise<RawReply> {
    return post(this.url, JSON.stringify(body), { ...headersOf(body), ...headers })
  }

  ask(method: string, params: Json = {}): Promise<RawReply> {
    return this.post(this.request(method, params))
  }

  call(name: string, args: Json = {}, more: Json = {}): Promise<RawReply> {
    return this.ask('tools/call', { name, arguments: args, ...more })
  }

  stream(method: string, params: Json = {}): Promise<EventReader> {
    const body = this.request(method, params)
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }
    const init = { method: 'POST', body: JSON.stringify(body), headers: { ...headers, ...headersOf(body) } }
    return EventReader.open(this.url, init)
  }

  async listen(notifications: Json): Promise<EventReader> {
    const reader = await this.stream('subscriptions/listen', { notifications })
    await reader.next(
      'it is acknowledged',
      ({ method }) => method === 'notifications/subscriptions/acknowledged',
    )
    return reader
  }
}

/** Returns the headers that repeat parts of a request. */
export function headersOf({ method, params }: Json): Record<string, string> {
  const name = (params as Json | undefined)?.name
  return {
    'mcp-protocol-version': VERSION,
    'mcp-method': String(method),
    ...(typeof name === 'string' ? { 'mcp-name': name } : {}),
  }
}

export function errorOf({ messages }: RawReply): { code: number; message: string; data: Json } {
  return messages[0]?.error as ReturnType<typeof errorOf>
}
