import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { text as readText } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import type { Era, Transport } from '../../../src/chaos/fault.ts'
import type { Json } from '../../e2e/support/gateway.ts'
import { cert, key } from '../../fixtures/tls.ts'
import { orBrokenOff } from '../../support/broken-off.ts'

const relay = fileURLToPath(new URL('relay.js', import.meta.url))

/** A connection of the gateway, or a process it started. Times are those of `performance.now()`. */
export interface Connection {
  readonly at: number
  /** How it ended: `FIN` or `RST`; for a process, `EOF` of its input, the signal, or `gone`. Undefined while open. */
  end: string | undefined
}

/** A request or notification, byte by byte. */
export interface Received {
  readonly at: number
  readonly connection: Connection
  readonly text: string
  readonly message: Json
  /** HTTP headers; empty over stdio. */
  readonly headers: Readonly<Record<string, unknown>>
}

/** A standing stream the gateway asked for. */
export interface Standing {
  readonly at: number
  readonly lastEventId: string | undefined
  /** The subscription id its messages carry in the modern era. */
  readonly subscription: unknown
  readonly response: ServerResponse
  isOpen: boolean
}

/** A sent message, byte by byte. */
export interface Sent {
  readonly at: number
  readonly text: string
  readonly message: Json
  /** The request it was sent for; undefined outside requests. */
  readonly request: Json | undefined
}

interface Reply {
  /** A message before the answer. */
  event(message: Json): void
  answer(message: Json): void
}

const sessionHeader = 'mcp-session-id'

/** The tools on the first page of a server's list; the second page has one more, so there is a cursor to follow. */
export const tools = ['echo', 'other', 'brief', 'again', 'large', 'stream', 'ask', 'pair', 'fails'] as const

const listed = (name: string): Json => ({
  name,
  description: `Tells what it knows of ${name}.`,
  inputSchema: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'array' } } },
  annotations: { readOnlyHint: true },
})

/**
 * An MCP server on plain sockets. It plays one script over each transport in each era, and records everything it gets
 * and sends.
 */
export class WireServer {
  /** Its config entry, with only the settings needed to reach it. */
  readonly entry: Json
  readonly name: string
  connections: Connection[] = []
  received: Received[] = []
  sent: Sent[] = []
  ended: string[] = []
  streams: Standing[] = []
  /** Names of tools at the end of the last page of its list. */
  added: string[] = []
  readonly #era: Era
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #sessions = new Set<string>()
  /** Functions that end calls waiting for an agent's answer, by the id of the question. */
  readonly #asked = new Map<string, () => void>()
  #pair: (() => void)[] = []
  #calls = 0
  /** Open standing streams, also from before `clear`. */
  readonly #standing = new Set<Standing>()
  #events = 0
  /** For HTTP+SSE: each session's stream, by the path of its messages. */
  readonly #streams = new Map<string, ServerResponse>()

  private constructor(name: string, transport: Transport, era: Era, server: Server, ca?: string) {
    this.name = name
    this.#era = era
    this.#server = server
    const { port } = server.address() as AddressInfo
    const path = transport === 'sse' ? 'sse' : 'mcp'
    // A host name, so there is a name to resolve; the certificate is for the IP address.
    const url = ca === undefined ? `http://localhost:${port}/${path}` : `https://127.0.0.1:${port}/${path}`
    this.entry = {
      era,
      ...(transport === 'stdio'
        ? { command: process.execPath, args: [relay, String(port)] }
        : { type: transport, url, forwardHeaders: { 'x-user-token': 'authorization' } }),
      ...(ca !== undefined && { tls: { ca } }),
    }
    if (transport === 'stdio') server.on('connection', (socket: Socket) => this.#servePipe(socket))
    else {
      server.on(ca === undefined ? 'connection' : 'secureConnection', (socket: Socket) =>
        this.#connected(socket),
      )
      server.on('request', (request: IncomingMessage, response: ServerResponse) => {
        const serving =
          transport === 'http' ? this.#serve(request, response) : this.#serveSse(request, response)
        orBrokenOff(serving)
      })
    }
  }

  /** `ca`: a file with the certificate, for a server behind TLS. */
  static async start(name: string, transport: Transport, era: Era, ca?: string): Promise<WireServer> {
    const server =
      transport === 'stdio'
        ? createServer({ allowHalfOpen: true })
        : ca === undefined
          ? createHttpServer()
          : createHttpsServer({ cert, key })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new WireServer(name, transport, era, server, ca)
  }

  clear(): void {
    this.connections = []
    this.received = []
    this.sent = []
    this.ended = []
    this.streams = []
    this.added = []
    this.#pair = []
  }

  /** Announces a change of its tools to all listeners. */
  tellChange(): void {
    for (const { response, subscription } of this.#standing) {
      const _meta = subscription === undefined ? undefined : subscriptionMeta(subscription)
      const message = { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params: { _meta } }
      const text = JSON.stringify(message)
      this.sent.push({ at: performance.now(), text, message, request: undefined })
      response.write(`id: event-${++this.#events}\ndata: ${text}\n\n`)
    }
  }

  stop(): void {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
  }

  #connected(socket: Socket): Connection {
    const connection: Connection = { at: performance.now(), end: undefined }
    this.connections.push(connection)
    this.#sockets.add(socket)
    socket.once('end', () => (connection.end ??= 'FIN'))
    socket.once('error', () => (connection.end ??= 'RST'))
    socket.once('close', () => {
      connection.end ??= 'FIN'
      this.#sockets.delete(socket)
    })
    Object.assign(socket, { [known]: connection })
    return connection
  }

  /** Reads a process's lines; the text after an EOT is how the process ended. */
  #servePipe(socket: Socket): void {
    const connection: Connection = { at: performance.now(), end: undefined }
    this.connections.push(connection)
    this.#sockets.add(socket)
    const lines = createInterface({ input: socket })
    lines.on('line', (line) => {
      if (line.startsWith('\x04')) return void (connection.end = line.slice(1))
      this.#take(
        { at: performance.now(), connection, text: line, message: JSON.parse(line) as Json, headers: {} },
        (text) => void socket.write(`${text}\n`),
      )
    })
    // A process killed with unread input resets its connection, and both objects emit the error.
    for (const source of [socket, lines]) source.on('error', () => undefined)
    socket.once('end', () => socket.end())
    socket.once('close', () => {
      this.ended.push((connection.end ??= 'gone'))
      this.#sockets.delete(socket)
    })
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const received = await this.#receive(request)
    // Each request gets its own connection, so every connection is visible. A large answer leaves its connection open
    // for reading.
    if (!received.text.includes('"large"')) response.setHeader('connection', 'close')
    const { message, headers } = received
    const isLegacy = this.#era === 'legacy'
    if (request.method === 'GET' && isLegacy) return this.#stand(received, response)
    if (request.method !== 'POST') {
      this.received.push(received)
      return void response.writeHead(405).end()
    }
    if (message.method === 'subscriptions/listen' && !isLegacy) return this.#stand(received, response)
    const session = headers[sessionHeader]
    if (isLegacy && message.method !== 'initialize' && !this.#sessions.has(String(session))) {
      this.received.push(received)
      const error = { code: -32001, message: 'Session not found' }
      return void response
        .writeHead(404, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id: null, error }))
    }
    if (isLegacy && message.method === 'initialize') {
      const id = `session-${this.#sessions.size + 1}`
      this.#sessions.add(id)
      response.setHeader(sessionHeader, id)
    }
    let isStream = false
    const event = (text: string) => {
      if (!isStream) response.writeHead(200, { 'content-type': 'text/event-stream' })
      isStream = true
      response.write(`data: ${text}\n\n`)
    }
    if (message.id === undefined || message.method === undefined) {
      response.writeHead(202).end()
      return this.#take(received, () => undefined)
    }
    this.#take(received, event, (text) => {
      if (isStream) {
        event(text)
        return void response.end()
      }
      const length = { 'content-length': Buffer.byteLength(text) }
      response.writeHead(200, { 'content-type': 'application/json', ...length }).end(text)
    })
  }

  #stand(received: Received, response: ServerResponse): void {
    this.received.push(received)
    const { at, headers, message } = received
    const lastEventId = headers['last-event-id'] as string | undefined
    const stream: Standing = { at, lastEventId, subscription: message.id, response, isOpen: true }
    this.streams.push(stream)
    this.#standing.add(stream)
    response.once('close', () => {
      stream.isOpen = false
      this.#standing.delete(stream)
    })
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
    if (message.id === undefined) return
    const { notifications } = message.params as Json
    const params = { notifications, _meta: subscriptionMeta(message.id) }
    const method = 'notifications/subscriptions/acknowledged'
    response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method, params })}\n\n`)
  }

  async #serveSse(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === 'GET') {
      this.received.push(await this.#receive(request))
      const path = `/messages/${this.#streams.size}`
      this.#streams.set(path, response.writeHead(200, { 'content-type': 'text/event-stream' }))
      return void response.write(`event: endpoint\ndata: ${path}\n\n`)
    }
    const received = await this.#receive(request)
    response.writeHead(202, { connection: 'close' }).end()
    const stream = this.#streams.get(String(request.url))
    this.#take(received, (text) => void stream?.write(`event: message\ndata: ${text}\n\n`))
  }

  async #receive(request: IncomingMessage): Promise<Received> {
    const { headers, socket } = request
    const text = await readText(request)
    const connection = (socket as Socket & { [known]: Connection })[known]
    return { at: performance.now(), connection, text, message: JSON.parse(text || '{}') as Json, headers }
  }

  #take(received: Received, event: (text: string) => void, answer = event): void {
    this.received.push(received)
    const { message } = received
    const sending = (send: (text: string) => void) => (sent: Json) => {
      const text = JSON.stringify(sent)
      this.sent.push({ at: performance.now(), text, message: sent, request: message })
      send(text)
    }
    if (message.method === undefined) {
      this.#asked.get(String(message.id))?.()
      this.#asked.delete(String(message.id))
    } else if (message.id !== undefined)
      this.#play(message, { event: sending(event), answer: sending(answer) })
  }

  #play({ id, method, params = {} }: Json, reply: Reply): void {
    const { cursor } = params as Json
    const result = (held: Json) =>
      reply.answer({
        jsonrpc: '2.0',
        id,
        result: { ...(this.#era === 'modern' && { resultType: 'complete' }), ...held },
      })
    const error = (code: number, message: string) =>
      reply.answer({ jsonrpc: '2.0', id, error: { code, message } })
    const holds = this.#era === 'modern' && { ttlMs: 0, cacheScope: 'private' }
    const capabilities = { tools: { listChanged: true } }
    const serverInfo = { name: this.name, version: '1' }
    switch (method) {
      case 'initialize':
        return result({ protocolVersion: (params as Json).protocolVersion, capabilities, serverInfo })
      case 'server/discover':
        return result({ supportedVersions: ['2026-07-28'], capabilities, serverInfo, ...holds })
      case 'ping':
        return result({})
      case 'tools/list': {
        if (cursor === undefined) return result({ tools: tools.map(listed), nextCursor: 'two', ...holds })
        if (cursor !== 'two') return error(-32602, 'Unknown cursor')
        return result({ tools: ['last', ...this.added].map(listed), ...holds })
      }
      case 'tools/call':
        return this.#call(params as Json, reply, result)
      default:
        return error(-32601, 'Method not found')
    }
  }

  #call(params: Json, reply: Reply, result: (held: Json) => void): void {
    const { name, arguments: args, _meta: meta } = params as Readonly<Record<string, Json | undefined>>
    const weather = {
      from: this.name,
      city: args?.city,
      at: '2026-03-01T12:00:00Z',
      count: 7,
      items: [1, 2, 3, 4],
      call: ++this.#calls,
    }
    const text = JSON.stringify(weather)
    const usual = () => result({ content: [{ type: 'text', text }], structuredContent: weather })
    switch (String(name)) {
      case 'large':
        return result({ content: [{ type: 'text', text: 'x'.repeat(8 * 1024 ** 2) }] })
      case 'fails':
        return result({ content: [{ type: 'text', text: 'no such city' }], isError: true })
      case 'stream':
        for (const progress of [1, 2])
          reply.event({
            jsonrpc: '2.0',
            method: 'notifications/progress',
            params: { progressToken: meta?.progressToken, progress },
          })
        return usual()
      case 'pair':
        // Answers in pairs: neither call before both have arrived, if both can arrive.
        this.#pair.push(usual)
        if (this.#pair.length === 2) return this.#pair.splice(0).forEach((answer) => answer())
        setTimeout(() => this.#pair.splice(0).forEach((answer) => answer()), PAIR_MS).unref()
        return
      case 'ask':
        if (this.#era === 'legacy') {
          const question = `question-${this.#calls}`
          this.#asked.set(question, usual)
          return reply.event({
            jsonrpc: '2.0',
            id: question,
            method: 'elicitation/create',
            params: elicitation,
          })
        }
        if (params.inputResponses !== undefined) return usual()
        return result({
          resultType: 'input_required',
          inputRequests: { name: { method: 'elicitation/create', params: elicitation } },
        })
      default:
        return usual()
    }
  }
}

/** Longest wait of a call of `pair` for the second call, in milliseconds. */
const PAIR_MS = 300

const elicitation = {
  mode: 'form',
  message: 'Who asks?',
  requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
}

const subscriptionMeta = (id: unknown): Json => ({ 'io.modelcontextprotocol/subscriptionId': id })

/** Property of a socket with its connection. */
const known = Symbol('connection')
