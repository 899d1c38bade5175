import {
  Client as ModernSdkClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client'
import { Client as SdkClient } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js'
import type { Signal } from '../mesh/cancel.ts'
import { type Cancel, type Clock, type Millis, systemClock } from '../mesh/clock.ts'
import { version } from '../protocol/identity.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import { patiently, type Within } from './timing.ts'
import type { Answer, ToolCall } from './twins.ts'

export interface ClientOptions {
  /** Its MCP endpoint. */
  readonly url: string
  /** The name by which it introduces itself. */
  readonly name: string
  readonly clock: Clock
  /** Ends the wait for its opening. */
  readonly stop: Signal
}

/** An agent's client, of the official SDK. Its calls get what comes, whatever the schemas of tools say. */
export interface Client {
  /** Rejects when that takes too long, or when it is stopped. */
  open(): Promise<void>
  /** Never rejects. Tells the gateway of a call that is given up. */
  call(call: ToolCall, within: Within): Promise<Answer>
  /** Never rejects. */
  close(): Promise<unknown>
}

/** How long a gateway may take to open a session, or to list its tools, in milliseconds. */
const OPEN_MS: Millis = 30_000

/** How long a gateway may take to hear that a session is over, in milliseconds. */
const LEAVE_MS: Millis = 2_000

/** How much longer than its agent a client would wait, in milliseconds: whoever gives up first tells the gateway. */
const GRACE_MS: Millis = 1_000

/** Clients that are opened at a time. */
const OPENING = 8

/** Most pages of tools that are read: whoever has more has no end. */
const MOST_PAGES = 1_000

const STOPPED = 'it was stopped before it began'

/** A client of the era with sessions. */
export class SessionClient implements Client {
  readonly #options: ClientOptions
  readonly #sdk: SdkClient
  readonly #url: URL
  /** Knows the session even after the client has let go of it. */
  readonly #transport: StreamableHTTPClientTransport

  constructor(options: ClientOptions) {
    this.#options = options
    this.#sdk = new SdkClient({ name: options.name, version })
    this.#url = new URL(options.url)
    this.#transport = new StreamableHTTPClientTransport(this.#url)
  }

  /** A stop waits 2 s for a session that is just being opened: nobody could end a session without its id. */
  async open(): Promise<void> {
    const { clock, stop } = this.#options
    if (stop.aborted) throw new Error(STOPPED)
    const ended = new AbortController()
    let cancel: Cancel | undefined
    const end = () => (cancel = clock.after(LEAVE_MS, () => ended.abort(new Error(STOPPED))))
    stop.addEventListener('abort', end)
    try {
      await this.#sdk.connect(this.#transport, { signal: ended.signal, timeout: OPEN_MS })
    } finally {
      stop.removeEventListener('abort', end)
      cancel?.()
    }
    demandRunning(stop)
  }

  /** The names of all tools that are listed. */
  async tools(): Promise<ReadonlySet<string>> {
    const names = new Set<string>()
    let cursor: string | undefined
    let pages = 0
    do {
      const params = cursor === undefined ? {} : { cursor }
      const page = await opening(this.#options, (options) => this.#sdk.listTools(params, options))
      for (const { name } of page.tools) names.add(name)
      cursor = page.nextCursor
    } while (cursor !== undefined && ++pages < MOST_PAGES)
    return names
  }

  call({ name, arguments: args, meta }: ToolCall, within: Within): Promise<Answer> {
    // Not `callTool`: it checks answers by their schemas itself.
    const request = { method: 'tools/call' as const, params: { name, arguments: args, _meta: meta } }
    return answerOf(within, (options) => this.#sdk.request(request, CallToolResultSchema, options))
  }

  /** Ends its session, if the gateway hears of that, and its connection: a session that is kept takes up a place. */
  async close(): Promise<void> {
    const { sessionId } = this.#transport
    if (sessionId !== undefined) {
      // A client that could not connect has closed its transport, which sends nothing any more.
      const way =
        this.#sdk.transport === undefined
          ? new StreamableHTTPClientTransport(this.#url, { sessionId })
          : this.#transport
      let cancel: Cancel | undefined
      const patience = new Promise<void>((resolve) => (cancel = this.#options.clock.after(LEAVE_MS, resolve)))
      await Promise.race([way.terminateSession().catch(() => undefined), patience])
      cancel?.()
    }
    await this.#sdk.close().catch(() => undefined)
  }
}

/** A client of the modern era. It keeps nothing between two calls, so that one serves any number of agents. */
export class ModernClient implements Client {
  readonly #options: ClientOptions
  readonly #sdk: ModernSdkClient

  constructor(options: ClientOptions) {
    this.#options = options
    const versionNegotiation = { mode: { pin: MODERN_VERSION } }
    this.#sdk = new ModernSdkClient({ name: options.name, version }, { versionNegotiation })
  }

  /** Asks what there is, in place of a session. */
  open(): Promise<void> {
    const way = new ModernTransport(new URL(this.#options.url))
    return opening(this.#options, (options) => this.#sdk.connect(way, options))
  }

  call({ name, arguments: args, meta }: ToolCall, within: Within): Promise<Answer> {
    // It checks answers by the schemas of tools that it has listed, and this client lists none.
    const params = { name, arguments: { ...args }, _meta: { ...meta } }
    return answerOf(within, (options) => this.#sdk.callTool(params, options))
  }

  close(): Promise<unknown> {
    return this.#sdk.close().catch(() => undefined)
  }
}

interface RequestOptions {
  readonly signal: AbortSignal
  readonly timeout: Millis
}

/** A request that comes before all calls. */
async function opening<Result>(
  { clock, stop }: ClientOptions,
  ask: (options: RequestOptions) => Promise<Result>,
): Promise<Result> {
  const within = { clock, ms: OPEN_MS + GRACE_MS, stop }
  return patiently(within, (signal) => ask({ signal, timeout: OPEN_MS })).catch((error: unknown) => {
    demandRunning(stop)
    throw error
  })
}

function demandRunning({ aborted }: Signal): void {
  if (aborted) throw new Error(STOPPED)
}

function answerOf(
  within: Within,
  ask: (options: RequestOptions) => Promise<Readonly<Record<string, unknown>>>,
): Promise<Answer> {
  return patiently(within, async (signal) => {
    try {
      signal.throwIfAborted()
      return { ok: true, result: await ask({ signal, timeout: within.ms + GRACE_MS }) }
    } catch (error) {
      return { ok: false, why: signal.aborted ? 'given up' : (error as Error).message.slice(0, 120) }
    }
  })
}

/** Opens clients, several at a time. Rejects when one cannot be opened; then all are closed. */
export async function openAll(clients: readonly Client[], url: string): Promise<void> {
  const waiting = [...clients]
  const openThem = async () => {
    try {
      for (let client = waiting.shift(); client !== undefined; client = waiting.shift()) await client.open()
    } catch (error) {
      waiting.length = 0
      throw error
    }
  }
  const opened = await Promise.allSettled(Array.from({ length: OPENING }, openThem))
  const failed = opened.find((one) => one.status === 'rejected')
  if (failed === undefined) return
  await closeAll(clients)
  throw new Error(`agents cannot connect to ${url}: ${(failed.reason as Error).message}`)
}

export const closeAll = (clients: readonly Client[]): Promise<unknown> =>
  Promise.all(clients.map((client) => client.close()))

/** The names of the tools that `/mcp` lists. Rejects with the reason. */
export async function toolsAt(url: string, stop: Signal): Promise<ReadonlySet<string>> {
  const client = new SessionClient({ url, name: 'compare', clock: systemClock, stop })
  try {
    await client.open()
    return await client.tools()
  } catch (error) {
    throw new Error(
      `tools cannot be listed at ${url}: ${(error as Error).message}; is this the port for agents? (--url URL)`,
    )
  } finally {
    await client.close()
  }
}
