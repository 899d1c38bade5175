import { EventReader } from './event-reader.ts'
import type { Json } from './gateway.ts'

export interface RawReply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The messages of the reply, from JSON or events. */
  readonly messages: Json[]
}

export interface OpenOptions {
  readonly version?: string
  readonly capabilities?: Json
  readonly headers?: Readonly<Record<string, string>>
}

/** A client that sends anything byte by byte, unchecked. */
export class RawClient {
  readonly url: string
  readonly headers: Record<string, string>
  readonly welcome: Json
  #ids = 0

  private constructor(url: string, headers: Record<string, string>, welcome: Json) {
    this.url = url
    this.headers = headers
    this.welcome = welcome
  }

  static async open(
    url: string,
    { version = '2025-11-25', capabilities = {}, headers = {} }: OpenOptions = {},
  ) {
    const clientInfo = { name: 'raw', version: '1' }
    const params = { protocolVersion: version, capabilities, clientInfo }
    const initializeRequest = { jsonrpc: '2.0', id: 'initialize', method: 'initialize', params }
    const reply = await post(url, JSON.stringify(initializeRequest), headers)
    const id = reply.headers.get('mcp-session-id')
    const session = {
      ...headers,
      'mcp-protocol-version': version,
      ...(id === null ? {} : { 'mcp-session-id': id }),
    }
    const client = new RawClient(url, session, reply.messages[0] ?? {})
    if (id !== null) await client.post({ jsonrpc: '2.0', method: 'notifications/initialized' })
    return client
  }

  get session(): string {
    return this.headers['mcp-session-id'] ?? ''
  }

  /** Posts a text unchanged, or a value as JSON. */
  post(body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<RawReply> {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    return post(this.url, text, { ...this.headers, ...headers })
  }

  async request(method: string, params: Json = {}): Promise<Json> {
    const id = `raw-${++this.#ids}`
    const { messages, status } = await this.post({ jsonrpc: '2.0', id, method, params })
    const response = messages.find((message) => message.id === id && !('method' in message))
    if (response === undefined)
      throw new Error(`no response to ${method}: HTTP ${status} ${JSON.stringify(messages)}`)
    return response
  }

  call(name: string, args: Json = {}): Promise<Json> {
    return this.request('tools/call', { name, arguments: args })
  }

  /** Calls a tool; resolves to the text of its first content block. */
  async say(name: string, args: Json = {}): Promise<string> {
    const response = await this.call(name, args)
    const { content } = (response.result ?? {}) as { content?: { text: string }[] }
    if (content?.[0] === undefined) throw new Error(`${name} returned no text: ${JSON.stringify(response)}`)
    return content[0].text
  }

  /** Opens the session's stream, or resumes a stream. */
  listen(lastEventId?: string): Promise<EventReader> {
    const resume = lastEventId === undefined ? {} : { 'last-event-id': lastEventId }
    return EventReader.open(this.url, {
      headers: { ...this.headers, accept: 'text/event-stream', ...resume },
    })
  }

  stream(body: Json, headers: Readonly<Record<string, string>> = {}): Promise<EventReader> {
    return EventReader.open(this.url, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { ...postHeaders, ...this.headers, ...headers },
    })
  }

  async leave(): Promise<number> {
    return (await fetch(this.url, { method: 'DELETE', headers: this.headers })).status
  }
}

const postHeaders = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

export async function post(
  url: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<RawReply> {
  const response = await fetch(url, { method: 'POST', body: text, headers: { ...postHeaders, ...headers } })
  const body = await response.text()
  return {
    status: response.status,
    headers: response.headers,
    text: body,
    messages: messagesIn(response, body),
  }
}

function messagesIn({ headers }: Response, body: string): Json[] {
  const type = headers.get('content-type') ?? ''
  if (type.includes('application/json')) return [JSON.parse(body) as Json | Json[]].flat()
  if (!type.includes('text/event-stream')) return []
  return body
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)) as Json)
}
