import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js'
import type { Cancellation } from '../../mesh/cancel.ts'
import { type Clock, type Millis, systemClock } from '../../mesh/clock.ts'
import { version } from '../../protocol/identity.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { askModern } from '../scenario/traffic.ts'
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
 * The agents of a run. Of the era with sessions each place has two, one for each arm, by the client of the official SDK;
 * those of the modern era keep nothing between two calls, so that one will do for all.
 */
export class Agents {
  readonly #options: AgentsOptions
  readonly #clients: Readonly<Record<Side, readonly Client[]>>
  readonly #underWay = new Set<AbortController>()
  readonly #modern: Agent

  private constructor(options: AgentsOptions, clients: Readonly<Record<Side, readonly Client[]>>) {
    this.#options = options
    this.#clients = clients
    this.#modern = { call: (call) => this.#callModern(call) }
    options.stop.addEventListener('abort', () => {
      for (const patience of this.#underWay) patience.abort()
    })
  }

  /** Opens their sessions. Rejects with a `CompareError`. */
  static async open(options: AgentsOptions): Promise<Agents> {
    const count = options.eras.includes('legacy') ? options.places : 0
    const clients = (side: Side) =>
      Array.from({ length: count }, (_, at) => new Client({ name: `compare-${side}-${at + 1}`, version }))
    const agents = new Agents(options, { control: clients('control'), treatment: clients('treatment') })
    try {
      for (const client of agents.#all()) {
        if (options.stop.aborted) throw new Error('it was stopped before it began')
        await client.connect(transportTo(options.url))
      }
      return agents
    } catch (error) {
      await agents.close()
      throw new CompareError(`no session can be opened at ${options.url}: ${(error as Error).message}`)
    }
  }

  at(place: number, side: Side, era: Workload['eras'][number]): Agent {
    if (era === 'modern') return this.#modern
    const client = this.#clients[side][place]!
    return { call: (call) => this.#callLegacy(client, call) }
  }

  /** Ends their sessions, which the gateway would keep for others to take their place. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#all().map((client) => leave(client, this.#options.clock)))
  }

  #all(): readonly Client[] {
    return [...this.#clients.control, ...this.#clients.treatment]
  }

  #callLegacy(client: Client, { name, arguments: args, meta }: ToolCall): Promise<Answer> {
    // Not `callTool`: it checks answers by their schemas itself, and these agents are to get what comes.
    const request = { method: 'tools/call' as const, params: { name, arguments: args, _meta: meta } }
    return this.#patiently(async (signal) => {
      // A little longer than ours: whoever gives up first tells the gateway.
      const timeout = this.#options.patienceMs + GRACE_MS
      return { ok: true, result: await client.request(request, CallToolResultSchema, { timeout, signal }) }
    })
  }

  #callModern({ name, arguments: args, meta }: ToolCall): Promise<Answer> {
    const { url } = this.#options
    return this.#patiently(async (signal) =>
      answerIn(await askModern(url, 'tools/call', { name, arguments: args }, meta, signal)),
    )
  }

  /** Waits as long as an agent does, and no longer than the run goes on. */
  async #patiently(call: (signal: AbortSignal) => Promise<Answer>): Promise<Answer> {
    const { clock, patienceMs, stop } = this.#options
    if (stop.aborted) return { ok: false, why: 'given up' }
    const patience = new AbortController()
    const cancel = clock.after(patienceMs, () => patience.abort())
    this.#underWay.add(patience)
    try {
      return await call(patience.signal)
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

/** What a reply of the modern era comes to. */
function answerIn(reply: unknown): Answer {
  const { result, error } = isObject(reply) ? reply : {}
  if (isObject(result)) {
    const isWhole = result.resultType === undefined || result.resultType === 'complete'
    return isWhole ? { ok: true, result } : { ok: false, why: `asks for more (${String(result.resultType)})` }
  }
  const said = isObject(error) && typeof error.message === 'string' ? error.message : 'no response'
  return { ok: false, why: said.slice(0, 120) }
}

/** How long a gateway may take to hear that a session is over, in milliseconds. */
const LEAVE_MS: Millis = 2_000

/** Ends a client's session, as far as the gateway hears of it, and its connection. */
async function leave(client: Client, clock: Clock): Promise<void> {
  const { transport } = client
  const patience = new Promise<void>((resolve) => clock.after(LEAVE_MS, resolve))
  if (transport instanceof StreamableHTTPClientTransport)
    await Promise.race([transport.terminateSession().catch(() => undefined), patience])
  await client.close()
}

const transportTo = (url: string) => new StreamableHTTPClientTransport(new URL(url))

/** The names of the tools that `/mcp` lists. Rejects with a `CompareError`. */
export async function toolsAt(url: string): Promise<ReadonlySet<string>> {
  const client = new Client({ name: 'compare', version })
  try {
    await client.connect(transportTo(url))
    const names = new Set<string>()
    let cursor: string | undefined
    do {
      const page = await client.listTools(cursor === undefined ? {} : { cursor })
      for (const { name } of page.tools) names.add(name)
      cursor = page.nextCursor
    } while (cursor !== undefined)
    return names
  } catch (error) {
    throw new CompareError(`tools cannot be listed at ${url}: ${(error as Error).message}`)
  } finally {
    await leave(client, systemClock)
  }
}
