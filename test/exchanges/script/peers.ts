import type { Json } from '../../e2e/support/gateway.ts'
import { headersOf, metaOf } from '../../e2e/support/modern-client.ts'
import type { OpenExchange, Player } from '../player.ts'
import type { WireReply } from '../wire.ts'

type Header = readonly [name: string, value: string]

const json: Header = ['content-type', 'application/json']
const both: Header = ['accept', 'application/json, text/event-stream']
const events: Header = ['accept', 'text/event-stream']

export const postHeaders: readonly Header[] = [json, both]

/** An endpoint of a gateway; the address is host:port. */
export interface Place {
  readonly address: string
  readonly path: string
}

export interface OpenOptions {
  readonly version?: string
  readonly capabilities?: Json
  readonly headers?: readonly Header[]
}

/** A legacy client; the player plays each of its requests. Ids count from 1. */
export class LegacyPeer {
  readonly #player: Player
  readonly #place: Place
  readonly #headers: readonly Header[]
  #ids = 0

  private constructor(player: Player, place: Place, headers: readonly Header[]) {
    this.#player = player
    this.#place = place
    this.#headers = headers
  }

  /** Initializes. All later requests use the session, if there is one. */
  static async open(player: Player, place: Place, options: OpenOptions = {}): Promise<LegacyPeer> {
    const { version = '2025-11-25', capabilities = {}, headers = [] } = options
    const params = { protocolVersion: version, capabilities, clientInfo: { name: 'recorder', version: '1' } }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params })
    const request = { method: 'POST', path: place.path, headers: [...postHeaders, ...headers], body }
    const reply = await player.send(`initialize with ${version}`, place.address, request)
    const session = reply.headers.find(([name]) => name.toLowerCase() === 'mcp-session-id')?.[1]
    const own: Header[] = session === undefined ? [] : [['mcp-session-id', session]]
    const version2: Header[] = version === '2024-11-05' ? [] : [['mcp-protocol-version', version]]
    return new LegacyPeer(player, place, [...headers, ...own, ...version2])
  }

  request(method: string, params?: unknown): string {
    return JSON.stringify({ jsonrpc: '2.0', id: ++this.#ids, method, params })
  }

  ask(title: string, method: string, params?: unknown, more: readonly Header[] = []): Promise<WireReply> {
    return this.post(title, this.request(method, params), more)
  }

  call(name: string, args?: unknown, meta?: Json, more: readonly Header[] = []): Promise<WireReply> {
    return this.ask(`call ${name}`, 'tools/call', called(name, args, meta), more)
  }

  notify(method: string, params?: Json): Promise<WireReply> {
    return this.post(method, JSON.stringify({ jsonrpc: '2.0', method, params }))
  }

  answer(question: string | undefined, result: Json): Promise<WireReply> {
    const { id, method } = messageOf(question)
    return this.post(`answer ${String(method)}`, JSON.stringify({ jsonrpc: '2.0', id, result }))
  }

  post(title: string, body: string, more: readonly Header[] = []): Promise<WireReply> {
    return this.open(title, body, more).end()
  }

  /** Posts, and reads the reply as it comes. */
  open(title: string, body: string, more: readonly Header[] = []): OpenExchange {
    const headers = [...postHeaders, ...this.#headers, ...more]
    return this.#player.open(title, this.#place.address, {
      method: 'POST',
      path: this.#place.path,
      headers,
      body,
    })
  }

  /** Opens or resumes the session's stream of events. */
  listen(title: string, lastEventId?: string): OpenExchange {
    const resume: Header[] = lastEventId === undefined ? [] : [['last-event-id', lastEventId]]
    const headers = [events, ...this.#headers, ...resume]
    return this.#player.open(title, this.#place.address, { method: 'GET', path: this.#place.path, headers })
  }

  leave(title = 'leave'): Promise<WireReply> {
    const { path, address } = this.#place
    return this.#player.send(title, address, { method: 'DELETE', path, headers: this.#headers })
  }
}

/** A modern client; the player plays each of its requests. Ids count from 1. */
export class ModernPeer {
  readonly #player: Player
  readonly #place: Place
  readonly #meta: Json
  #ids = 0

  constructor(player: Player, place: Place, capabilities: Json = {}) {
    this.#player = player
    this.#place = place
    this.#meta = metaOf(capabilities)
  }

  request(method: string, params: Json = {}): Json {
    const { _meta: meta, ...rest } = params
    const all = { ...this.#meta, ...(meta as Json | undefined) }
    return { jsonrpc: '2.0', id: ++this.#ids, method, params: { ...rest, _meta: all } }
  }

  ask(title: string, method: string, params: Json = {}, more: readonly Header[] = []): Promise<WireReply> {
    return this.open(title, method, params, more).end()
  }

  call(name: string, args?: unknown, more: Json = {}, headers: readonly Header[] = []): Promise<WireReply> {
    return this.ask(`call ${name}`, 'tools/call', { name, arguments: args, ...more }, headers)
  }

  /** Posts a request with its matching headers, and reads the reply as it comes. */
  open(title: string, method: string, params: Json = {}, more: readonly Header[] = []): OpenExchange {
    const message = this.request(method, params)
    const { uri } = params
    const named: Header[] = typeof uri === 'string' ? [['mcp-name', uri]] : []
    return this.openText(title, JSON.stringify(message), [
      ...Object.entries(headersOf(message)),
      ...named,
      ...more,
    ])
  }

  /** Posts a text with these headers and the headers of every POST. */
  openText(title: string, body: string, headers: readonly Header[]): OpenExchange {
    const { path, address } = this.#place
    return this.#player.open(title, address, {
      method: 'POST',
      path,
      headers: [...postHeaders, ...headers],
      body,
    })
  }

  post(title: string, body: string, headers: readonly Header[]): Promise<WireReply> {
    return this.openText(title, body, headers).end()
  }
}

function called(name: string, args: unknown, meta: Json | undefined): Json {
  return { name, arguments: args, ...(meta === undefined ? {} : { _meta: meta }) }
}

export function messageOf(event: string | undefined): Json {
  const data = event
    ?.split('\n')
    .find((line) => line.startsWith('data: {'))
    ?.slice('data: '.length)
  if (data === undefined) throw new Error(`no message in the event ${String(event)}`)
  return JSON.parse(data) as Json
}
