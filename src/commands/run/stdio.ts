import type { Readable, Writable } from 'node:stream'
import { Pool } from 'undici'
import type { Env } from '../../config/files/interpolate.ts'
import { gatewayErrorText } from '../../downstream/respond.ts'
import { type Clock, type Millis, systemClock } from '../../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../../mesh/errors.ts'
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
import { encodeHeaderValue, PROTOCOL_VERSION_KEY } from '../../protocol/versions.ts'
import type { SseEvent } from '../../protocol/sse.ts'
import { settled } from '../../registry/listing.ts'
import { connectorOf } from '../../wire/connector.ts'
import type { ReplyHeaders } from '../../upstreams/http/http-status.ts'
import { HttpListener } from '../../upstreams/http/http-listener.ts'
import { leave } from '../../upstreams/http/http-post.ts'
import { HttpReply, type ReplySink } from '../../upstreams/http/http-reply.ts'
import { OneWayPosts } from '../../upstreams/http/one-way-posts.ts'
import { PooledCalls } from '../../upstreams/http/calls.ts'
import { HttpWire } from '../../upstreams/http/http-wire.ts'
import type { Overlong } from '../../protocol/overlong.ts'
import { readLines } from '../../upstreams/stdio/lines.ts'
import { Misuse, optionLines, type Output, runCommand, type Values, wrapping } from '../shared/arguments.ts'
import { exitSoon } from './exit-soon.ts'
import { reportFaults } from './wrap/report.ts'
import { untilSignal } from '../shared/signals.ts'
import { WRAPPED } from './plan-file.ts'
import { MAX_MESSAGE, startWrapped } from './wrap/wrapped.ts'

const usage = `breakwater stdio [--plan FILE] [--strict] -- PROGRAM [ARGUMENT …]

  Wraps the MCP server PROGRAM in the whole mesh, and serves it over standard input and output.

${optionLines(wrapping)}`

/** Start timeout of the program, which may be downloaded first; the first message waits for the start. */
const START_MS: Millis = 60_000

/** Longest wait for the last answers after the gateway has closed, in milliseconds. */
const LAST_ANSWERS_MS: Millis = 1_000

/** How long the client may pause while it reads the remaining output at the end, in milliseconds. */
const LAST_LINES_MS: Millis = 5_000

/** Timeout of calls under way after the client's end of input, in milliseconds. */
const LAST_CALLS_MS: Millis = 5_000

/**
 * `breakwater stdio`: an MCP server over standard input and output, wrapping another server in the mesh. Runs until the
 * end of its input. Resolves to the exit code.
 */
export function stdio(
  args: readonly string[],
  out: Output,
  env: Env,
  io: { readonly stdin: Readable; readonly stdout: Writable } = process,
): Promise<number> {
  return runCommand(args, { usage, options: wrapping }, out, (values, program) =>
    serve(values, program, out, env, io),
  )
}

async function serve(
  values: Values<typeof wrapping>,
  [command, ...rest]: readonly string[],
  out: Output,
  env: Env,
  io: { readonly stdin: Readable; readonly stdout: Writable },
): Promise<number> {
  if (command === undefined) throw new Misuse('which program?')
  const gateway = await startWrapped(
    {
      plan: values.plan,
      strict: values.strict,
      logLevel: values['log-level'],
      // The client starts this command in place of the program, so its environment variables are for the program.
      server: {
        command,
        args: rest,
        env: definedIn(env),
        timeouts: { connect: START_MS, discovery: START_MS },
      },
      // Only this process reaches the gateway, and the session ends with the input.
      gateway: { listen: '127.0.0.1:0', drain: 0, sessions: { max: 4, idle: '24d' } },
    },
    out,
    env,
  )

  const { write, room, read, gone } = lineWriter(io.stdout)
  const url = `${gateway.data}/mcp/${WRAPPED}`
  const bridge = new Bridge({ url, clock: systemClock, maxMessage: MAX_MESSAGE, write, room })
  const stop = Promise.race([untilSignal(), gone])
  const untilRead = async () => {
    await settled(gateway.live.current.servers.values(), systemClock, START_MS)
    // A read error counts as the end of the input.
    await readLines(
      io.stdin,
      () => MAX_MESSAGE,
      (line) => bridge.take(line),
    ).catch(() => undefined)
    await bridge.settled(LAST_CALLS_MS)
    await read(systemClock, LAST_LINES_MS)
  }
  await Promise.race([untilRead(), stop])
  io.stdin.destroy()
  // Closes the gateway first: it answers the calls under way, because only it knows if a call has reached the program.
  await gateway.close()
  await bridge.settled(LAST_ANSWERS_MS)
  await bridge.close()
  reportFaults(gateway.chaos.status(), out)
  exitSoon(0)
  return 0
}

function definedIn(env: Env): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

/** Maximum number of bytes in the output buffer. Above this number the command reads no further input. */
const MOST_UNREAD = 1024 ** 2

export interface LineWriter {
  /**
   * Writes a line. Returns a promise when the caller has to wait for a slow reader. Drops lines after the reader has
   * closed.
   */
  readonly write: (line: string) => Promise<void> | undefined
  /**
   * Returns a promise only while more than `MOST_UNREAD` bytes are unread. Smaller buffers must not block, because many
   * clients write all input before they read.
   */
  readonly room: () => Promise<void> | undefined
  /** Resolves when everything was read, or when nothing was read for `patienceMs`. */
  readonly read: (clock: Clock, patienceMs: Millis) => Promise<void>
  /** Resolves when the reader has closed. */
  readonly gone: Promise<void>
}

export function lineWriter(stream: Writable): LineWriter {
  let drained: Promise<void> | undefined
  let isGone = false
  const gone = new Promise<void>((resolve) => {
    const end = () => {
      isGone = true
      resolve()
    }
    stream.once('close', end)
    // The listener stays for good, because an unhandled error ends the process.
    stream.on('error', end)
  })
  const untilDrained = () =>
    (drained ??= Promise.race([new Promise<void>((resolve) => stream.once('drain', resolve)), gone]).then(
      () => {
        drained = undefined
      },
    ))
  return {
    gone,
    write: (line) => (isGone || stream.write(`${line}\n`) ? undefined : untilDrained()),
    room: () => (isGone || stream.writableLength <= MOST_UNREAD ? undefined : untilDrained()),
    async read(clock, patienceMs) {
      const all = Promise.race([new Promise<void>((resolve) => stream.write('', () => resolve())), gone])
      for (let before = Infinity; !isGone && stream.writableLength > 0 && stream.writableLength < before;) {
        before = stream.writableLength
        await Promise.race([all, new Promise<void>((resolve) => clock.after(patienceMs, resolve))])
      }
    },
  }
}

interface BridgeParts {
  readonly url: string
  readonly clock: Clock
  /** Longest message in each direction, in bytes. */
  readonly maxMessage: number
  /** Writes a line to the client. Returns a promise when the caller has to wait for the client. */
  readonly write: LineWriter['write']
  readonly room: LineWriter['room']
}

/** Timeout to end the session, in milliseconds. */
const LEAVE_MS: Millis = 500

/** Carries messages between a client on stdio (a message per line) and an endpoint of Streamable HTTP. */
class Bridge {
  readonly #parts: BridgeParts
  readonly #pool: Pool
  readonly #bare: HttpWire
  #wire: HttpWire
  readonly #underWay = new Map<PostedMessage, HttpReply>()
  #listener: HttpListener | undefined
  #quiet: () => void = () => undefined

  constructor(parts: BridgeParts) {
    this.#parts = parts
    // The mesh limits the time of replies, so the pool has no timeouts.
    const { url } = parts
    const { origin } = new URL(url)
    this.#pool = new Pool(origin, { headersTimeout: 0, bodyTimeout: 0, connect: connectorOf() })
    // All messages go out in order over `calls`, so the sockets for one-way posts are never opened.
    const oneWay = new OneWayPosts(origin, { connections: 1 })
    const pools = { calls: new PooledCalls(this.#pool), oneWay, streams: this.#pool }
    this.#bare = HttpWire.to({ url, headers: {}, agent: undefined }, pools)
    this.#wire = this.#bare
  }

  /** Forwards a line of the client. Returns a promise when the next line has to wait, to keep the order. */
  take(line: string | Overlong): Promise<void> | undefined {
    const said = readLine(line, this.#parts.maxMessage)
    if (typeof said === 'string') return this.#parts.write(said)
    if (said === undefined || typeof line !== 'string') return undefined
    if (said.messages.some(({ method }) => method === 'initialize')) return this.#initialize(line, said)
    const isModern = this.#wire.sessionId === undefined
    const [first] = said.messages
    if (isModern && first !== undefined && said.messages.length === 1 && this.#takesBack(first))
      return undefined
    if (!isModern) for (const message of said.messages) this.#expectsNoMore(message)
    const posted = this.#post(line, said)
    // Later lines may depend on a line without requests, so the next line waits until the gateway has accepted this
    // line.
    return posted.ids.size > 0 ? this.#parts.room() : posted.over
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

  /** Aborts all calls under way, and ends the session. */
  async close(): Promise<void> {
    for (const reply of this.#underWay.values())
      reply.abort(gatewayError('shutting_down', 'the gateway has ended', { sent: reply.sent }))
    await this.#leave()
    await this.#pool.destroy()
  }

  async #leave(): Promise<void> {
    this.#listener?.close()
    if (this.#wire.sessionId !== undefined) await leave(this.#wire, this.#parts.clock, LEAVE_MS)
  }

  /**
   * Opens a new session. The next message waits for the end, because no other message is valid before the session is
   * open.
   */
  async #initialize(line: string, said: Said): Promise<void> {
    await this.#leave()
    this.#wire = this.#bare
    await this.#post(line, said).over
  }

  #post(line: string, { messages, ids }: Said): PostedMessage {
    const posted = new PostedMessage(ids, {
      write: this.#parts.write,
      onSession: (id, version) => this.#open(id, version),
    })
    const reply = new HttpReply(posted, { maxReply: this.#parts.maxMessage })
    this.#underWay.set(posted, reply)
    void posted.over.then(() => {
      this.#underWay.delete(posted)
      if (this.#underWay.size === 0) this.#quiet()
    })
    this.#wire.post(line, modernHeaders(messages[0]), reply)
    return posted
  }

  /**
   * Handles a notification of a client without a session. In the modern era, HTTP has no notifications: closing the
   * connection cancels a request. Returns true when the message must not be sent.
   */
  #takesBack(message: Said['messages'][number]): boolean {
    if (kindOf(message) !== 'notification') return false
    for (const reply of this.#expectsNoMore(message))
      reply.abort(gatewayError('cancelled', 'the client cancelled the request'))
    return true
  }

  /**
   * If the message cancels a request, removes the request from the open requests, so it gets no error reply. Returns
   * the replies of the request.
   */
  #expectsNoMore(message: Said['messages'][number]): HttpReply[] {
    const { requestId } = paramsOf(message)
    if (message.method !== 'notifications/cancelled' || !isRequestId(requestId)) return []
    return [...this.#underWay].filter(([{ ids }]) => ids.delete(requestId)).map(([, reply]) => reply)
  }

  /** Resolves when the stream for the server's own messages is open. */
  async #open(id: string, version: string): Promise<void> {
    const wire = this.#bare.inSession(id, version)
    this.#wire = wire
    const { clock, maxMessage: maxReply, write, room } = this.#parts
    this.#listener = new HttpListener({
      clock,
      maxReply,
      currentWire: () => wire,
      receive: (data) => void write(data),
      backpressure: room,
      ready: () => Promise.resolve(),
      // The next message of the client will find that the session is lost, so the listener need not check it.
      isLost: () => Promise.resolve(false),
    })
    await this.#listener.opening
  }
}

/** A line of a client: a message, or several as a batch. */
interface Said {
  readonly messages: readonly Readonly<Record<string, unknown>>[]
  /** Ids of the requests among the messages; each request needs an answer. */
  readonly ids: Set<RequestId>
}

/** Parses a line of a client. Returns an error's text for an invalid line, and undefined for an empty line. */
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

/** Parameters that name the tool, resource or task of a request. */
const names = ['name', 'uri', 'taskId'] as const

/**
 * Returns the headers of the modern era, which repeat parts of the body over HTTP; undefined for a request of the
 * legacy era.
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

interface PostedMessageParts {
  /** Writes a line to the client. Returns a promise when the caller has to wait for the client. */
  readonly write: (line: string) => Promise<void> | undefined
  /** Called when a reply opens a session; the reply is passed on after the promise resolves. */
  readonly onSession: (id: string, version: string) => Promise<void>
}

/** Maximum number of characters shown of a body that is not JSON-RPC. */
const SHOWN = 200

/** The reply to a POST, line by line. Stdio has no status codes, so each request gets an answer or an error. */
export class PostedMessage implements ReplySink {
  /** Ids of the requests that have no answer yet. */
  readonly ids: Set<RequestId>
  /** Resolves at the end of the reply. */
  readonly over: Promise<void>
  readonly #parts: PostedMessageParts
  #end: () => void = () => undefined
  #broken = false

  constructor(ids: Set<RequestId>, parts: PostedMessageParts) {
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
      // A server that refuses a request without reading it does not know the id.
      for (const id of this.ids) void this.#parts.write(JSON.stringify({ ...value, id }))
      this.ids.clear()
    } else if (isObject(value) ? 'jsonrpc' in value : Array.isArray(value)) void this.#pass(text, value)
    const words = text === '' ? '' : `: ${text.slice(0, SHOWN)}`
    this.#giveUp(gatewayError('upstream_refused', `HTTP ${status} without an answer${words}`, { sent: true }))
  }

  /**
   * Passes a message of the server on to the client. Drops invalid JSON, because it would break the client's parser.
   */
  #pass(text: string, value: unknown): Promise<void> | undefined {
    if (value === undefined) {
      this.#broken = true
      return undefined
    }
    for (const message of Array.isArray(value) ? value : [value]) {
      if (isObject(message) && message.method === undefined && isRequestId(message.id))
        this.ids.delete(message.id)
    }
    // In valid JSON, line breaks occur only between tokens, so spaces can replace them.
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
