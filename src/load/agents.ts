import {
  Client as ModernClient,
  StreamableHTTPClientTransport as ModernTransport,
} from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js'
import type { Cancellation } from '../mesh/cancel.ts'
import { type Cancel, type Clock, type Millis, systemClock } from '../mesh/clock.ts'
import { version } from '../protocol/identity.ts'
import { MODERN_VERSION } from '../protocol/versions.ts'
import type { Agent, Answer, Side, ToolCall } from './twins.ts'
import type { Workload } from './workload.ts'

/** No comparison can be made; the message says why. */
export class CompareError extends Error {}

export interface AgentsOptions {
  /** Where all servers are: `…/mcp`. */
  readonly url: string
  /** How many tasks there are at a time. */
  readonly places: number
  readonly eras: Workload['eras']
  readonly patienceMs: Millis
  readonly clock: Clock
  /** Gives up all calls that are under way. */
  readonly stop: Cancellation
}

/**
 * The agents of a run: clients of the official SDK. In the era with sessions, each place has two clients, one for each arm.
 * Clients of the modern era keep nothing between two calls, so that one client serves all places.
 */
export class Agents {
  readonly #options: AgentsOptions
  readonly #seats: Readonly<Record<Side, readonly Seat[]>>
  readonly #underWay = new Set<AbortController>()
  readonly #modern = new ModernClient(
    { name: 'compare', version },
    { versionNegotiation: { mode: { pin: MODERN_VERSION } } },
  )

  private constructor(options: AgentsOptions, seats: Readonly<Record<Side, readonly Seat[]>>) {
    this.#options = options
    this.#seats = seats
    options.stop.addEventListener('abort', () => {
      for (const patience of this.#underWay) patience.abort()
    })
  }

  /** Opens their sessions, several at a time. Rejects with a `CompareError`; then those that were opened have been ended. */
  static async open(options: AgentsOptions): Promise<Agents> {
    const count = options.eras.includes('legacy') ? options.places : 0
    const seats = () => Array.from({ length: count }, (_, at) => seatAt(options.url, `compare-${at + 1}`))
    // The same names in both arms: a client's name is its tenant, where it names none.
    const agents = new Agents(options, { control: seats(), treatment: seats() })
    const waiting = [...agents.#all()]
    const openThem = async () => {
      try {
        for (let seat = waiting.shift(); seat !== undefined; seat = waiting.shift())
          await connect(seat, options.stop, options.clock)
      } catch (error) {
        waiting.length = 0
        throw error
      }
    }
    const opening = Array.from({ length: OPENING }, openThem)
    if (options.eras.includes('modern')) opening.push(agents.#connectModern())
    const opened = await Promise.allSettled(opening)
    const failed = opened.find(({ status }) => status === 'rejected')
    if (failed === undefined) return agents
    await agents.close()
    const { message } = (failed as PromiseRejectedResult).reason as Error
    throw new CompareError(`agents cannot connect to ${options.url}: ${message}`)
  }

  at(place: number, side: Side, era: Workload['eras'][number]): Agent {
    if (era === 'modern') return { call: (call) => this.#callModern(call) }
    const { client } = this.#seats[side][place]!
    return { call: (call) => this.#callLegacy(client, call) }
  }

  /** Ends their sessions, which the gateway would keep for others to take their place. */
  async close(): Promise<void> {
    const left = this.#all().map((seat) => leave(seat, this.#options.clock))
    await Promise.allSettled([...left, this.#modern.close()])
  }

  /** Asks what there is, as the modern era does in place of a session. */
  #connectModern(): Promise<void> {
    const { url, stop } = this.#options
    return untilStopped(stop, (signal) =>
      this.#modern.connect(new ModernTransport(new URL(url)), { signal, timeout: OPEN_MS }),
    )
  }

  #all(): readonly Seat[] {
    return [...this.#seats.control, ...this.#seats.treatment]
  }

  #callLegacy(client: Client, { name, arguments: args, meta }: ToolCall): Promise<Answer> {
    // Not `callTool`: it checks answers by their schemas itself, and these agents are to get what comes.
    const request = { method: 'tools/call' as const, params: { name, arguments: args, _meta: meta } }
    return this.#patiently(async (options) => ({
      ok: true,
      result: await client.request(request, CallToolResultSchema, options),
    }))
  }

  #callModern({ name, arguments: args, meta }: ToolCall): Promise<Answer> {
    // It checks answers by the schemas of tools that it has listed, and this client lists none.
    const params = { name, arguments: { ...args }, _meta: { ...meta } }
    return this.#patiently(async (options) => ({
      ok: true,
      result: await this.#modern.callTool(params, options),
    }))
  }

  /** Waits as long as an agent does, and no longer than the run goes on. */
  async #patiently(
    call: (options: { readonly signal: AbortSignal; readonly timeout: Millis }) => Promise<Answer>,
  ): Promise<Answer> {
    const { clock, patienceMs, stop } = this.#options
    if (stop.aborted) return { ok: false, why: 'given up' }
    const patience = new AbortController()
    const cancel = clock.after(patienceMs, () => patience.abort())
    this.#underWay.add(patience)
    try {
      // A little longer than ours: whoever gives up first tells the gateway.
      return await call({ signal: patience.signal, timeout: patienceMs + GRACE_MS })
    } catch (error) {
      return { ok: false, why: patience.signal.aborted ? 'given up' : (error as Error).message.slice(0, 120) }
    } finally {
      cancel()
      this.#underWay.delete(patience)
    }
  }
}

/** In milliseconds. */
const GRACE_MS: Millis = 1_000

/** A client and its way to the gateway, which knows the session even after the client has let go of it. */
interface Seat {
  readonly client: Client
  readonly url: URL
  readonly transport: StreamableHTTPClientTransport
}

function seatAt(address: string, name: string): Seat {
  const url = new URL(address)
  return { client: new Client({ name, version }), url, transport: new StreamableHTTPClientTransport(url) }
}

/** Sessions that are opened at a time. */
const OPENING = 8

/** How long a gateway may take to hear that a session is over, in milliseconds. */
const LEAVE_MS: Millis = 2_000

/** Ends a client's session, as far as the gateway hears of it, and its connection. */
async function leave({ client, url, transport }: Seat, clock: Clock): Promise<void> {
  const { sessionId } = transport
  if (sessionId !== undefined) {
    // A client that could not connect has closed its transport, which sends nothing any more.
    const way =
      client.transport === undefined ? new StreamableHTTPClientTransport(url, { sessionId }) : transport
    let cancel: Cancel | undefined
    const patience = new Promise<void>((resolve) => (cancel = clock.after(LEAVE_MS, resolve)))
    await Promise.race([way.terminateSession().catch(() => undefined), patience])
    cancel?.()
  }
  await client.close()
}

/** How long a gateway may take to open a session, or to list its tools, in milliseconds. */
const OPEN_MS: Millis = 30_000

/**
 * Opens a client's session. Rejects when that takes too long, or when the run is stopped: a session that is just being
 * opened then is waited for, if not for long, as nobody could end it whose id never came.
 */
async function connect({ client, transport }: Seat, stop: Cancellation, clock: Clock): Promise<void> {
  if (stop.aborted) throw new Error(STOPPED)
  const ended = new AbortController()
  let cancel: Cancel | undefined
  const end = () => (cancel = clock.after(LEAVE_MS, () => ended.abort(new Error(STOPPED))))
  stop.addEventListener('abort', end)
  try {
    await client.connect(transport, { signal: ended.signal, timeout: OPEN_MS })
  } finally {
    stop.removeEventListener('abort', end)
    cancel?.()
  }
  // It may have been while the session was opened.
  if (isStopped(stop)) throw new Error(STOPPED)
}

const STOPPED = 'it was stopped before it began'

const isStopped = ({ aborted }: Cancellation) => aborted

/** A task under a signal of the platform, which aborts when the run is stopped. */
async function untilStopped<T>(stop: Cancellation, task: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const ended = new AbortController()
  const end = () => ended.abort(new Error(STOPPED))
  if (stop.aborted) end()
  else stop.addEventListener('abort', end)
  try {
    return await task(ended.signal)
  } finally {
    stop.removeEventListener('abort', end)
  }
}

/** Most pages of tools that are read: whoever has more has no end. */
const MOST_PAGES = 1_000

/** The names of the tools that `/mcp` lists. Rejects with a `CompareError`. */
export async function toolsAt(url: string, stop: Cancellation): Promise<ReadonlySet<string>> {
  const seat = seatAt(url, 'compare')
  const { client } = seat
  try {
    await connect(seat, stop, systemClock)
    const names = new Set<string>()
    let cursor: string | undefined
    let pages = 0
    do {
      const params = cursor === undefined ? {} : { cursor }
      const page = await untilStopped(stop, (signal) =>
        client.listTools(params, { signal, timeout: OPEN_MS }),
      )
      for (const { name } of page.tools) names.add(name)
      cursor = page.nextCursor
    } while (cursor !== undefined && ++pages < MOST_PAGES)
    return names
  } catch (error) {
    throw new CompareError(
      `tools cannot be listed at ${url}: ${(error as Error).message}; is this the port for agents? (--url URL)`,
    )
  } finally {
    await leave(seat, systemClock)
  }
}
