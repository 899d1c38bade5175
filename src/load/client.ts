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
  readonly url: string
  /** The client's name in the MCP handshake. */
  readonly name: string
  readonly clock: Clock
  /** Aborts the opening. */
  readonly stop: Signal
}

/** An agent's client, from the official SDK. Returns every answer unchecked, whatever the tools' schemas say. */
export interface Client {
  /** Rejects when opening takes too long or is stopped. */
  open(): Promise<void>
  /** Never rejects. Notifies the gateway of a cancelled call. */
  call(call: ToolCall, within: Within): Promise<Answer>
  /** Never rejects. */
  close(): Promise<unknown>
}

/** Timeout for opening a session or listing tools, in milliseconds. */
const OPEN_MS: Millis = 30_000

/** Timeout for ending a session, in milliseconds. */
const LEAVE_MS: Millis = 2_000

/**
 * Time by which the client's timeout exceeds the agent's timeout, in milliseconds, so the agent's timeout cancels
 * first.
 */
const GRACE_MS: Millis = 1_000

/** Maximum number of clients that are opened at the same time. */
const OPENING = 8

/** Maximum number of pages read from a tool list; a list with more pages counts as endless. */
const MOST_PAGES = 1_000

const STOPPED = 'the command was stopped before it began'

/** A client of the legacy era, which uses sessions. */
export class SessionClient implements Client {
  readonly #options: ClientOptions
  readonly #sdk: SdkClient
  readonly #url: URL
  /** Keeps the session id even after the client has dropped the id. */
  readonly #transport: StreamableHTTPClientTransport

  constructor(options: ClientOptions) {
    this.#options = options
    this.#sdk = new SdkClient({ name: options.name, version })
    this.#url = new URL(options.url)
    this.#transport = new StreamableHTTPClientTransport(this.#url)
  }

  /**
   * Opens a session. After a stop, waits up to 2 s for the session id, because a session cannot be ended without its
   * id.
   */
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

  /** Returns the names of all listed tools. */
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
    // Does not use `callTool`, because it checks answers against schemas.
    const request = { method: 'tools/call' as const, params: { name, arguments: args, _meta: meta } }
    return answerOf(within, (options) => this.#sdk.request(request, CallToolResultSchema, options))
  }

  /**
   * Closes the connection, and ends the session if the gateway answers in time. An open session would count against the
   * gateway's limit.
   */
  async close(): Promise<void> {
    const { sessionId } = this.#transport
    if (sessionId !== undefined) {
      // After a failed connection the client has closed its transport, so a new transport ends the session.
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

/** A client of the modern era. Keeps no state between calls, so a single client serves any number of agents. */
export class ModernClient implements Client {
  readonly #options: ClientOptions
  readonly #sdk: ModernSdkClient

  constructor(options: ClientOptions) {
    this.#options = options
    const versionNegotiation = { mode: { pin: MODERN_VERSION } }
    this.#sdk = new ModernSdkClient({ name: options.name, version }, { versionNegotiation })
  }

  /** Sends the discovery request; the modern era has no sessions to open. */
  open(): Promise<void> {
    const way = new ModernTransport(new URL(this.#options.url))
    return opening(this.#options, (options) => this.#sdk.connect(way, options))
  }

  call({ name, arguments: args, meta }: ToolCall, within: Within): Promise<Answer> {
    // The SDK checks answers against the schemas of listed tools, and this client lists none.
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

/** Sends a request before the first call, with the timeout `OPEN_MS`. */
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

/** Opens clients, several at a time. When a client cannot be opened, closes all clients and rejects. */
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

/** Returns the names of the tools on `/mcp`. Rejects with the reason. */
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
