import { isDeepStrictEqual } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js'
import type { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { createKeyedRandom, type KeyedRandom } from '../mesh/keyed-random.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../protocol/meta.ts'
import { INTENT_KEY } from '../protocol/task.ts'
import { type Args, docs, orders } from './shop/tools.ts'

/** Sessions, over which the tasks are spread. */
const AGENTS = 4

/** Tasks that begin in a second. */
const TASKS_A_SECOND = 5

/** Most tasks under way at a time: past it the next one waits. */
const MAX_UNDER_WAY = 64

/** How long an agent waits for a call, in milliseconds: longer than the gateway does, with policies and without. */
const PATIENCE_MS: Millis = 30_000

/** The agents' own counts of their calls and tasks, without the gateway's help. */
export interface Tally {
  calls: number
  /** Calls with the answer that they should have. */
  right: number
  /** Calls with another answer, of which nothing says so. */
  wrong: number
  /** Calls with an answer that says of itself that something is missing. */
  flagged: number
  /** Calls with an error, be it of the protocol or of the tool. */
  errors: number
  succeeded: number
  failed: number
}

export const newTally = (): Tally => ({
  calls: 0,
  right: 0,
  wrong: 0,
  flagged: 0,
  errors: 0,
  succeeded: 0,
  failed: 0,
})

/** How a task ended, in the words of `/admin/outcomes`. */
export interface TaskReport {
  readonly intent: string
  readonly outcome: 'succeeded' | 'failed'
}

const tools = { docs, orders }

interface Step {
  readonly server: keyof typeof tools
  readonly tool: string
  readonly args: Args
}

/** Returns the calls of a task, one after the other: five read, one writes. */
function stepsOf(task: string, random: KeyedRandom): readonly Step[] {
  const item = `item-${Math.floor(random(task, 'item') * 1_000)}`
  const quantity = 1 + Math.floor(random(task, 'quantity') * 9)
  return [
    { server: 'docs', tool: 'search_docs', args: { query: item } },
    { server: 'docs', tool: 'read_doc', args: { id: `${item}-1` } },
    { server: 'orders', tool: 'check_stock', args: { item } },
    { server: 'orders', tool: 'quote_price', args: { item, quantity } },
    { server: 'orders', tool: 'place_order', args: { ref: task, item, quantity } },
    { server: 'docs', tool: 'search_docs', args: { query: `${item} returns` } },
  ]
}

/** Agents that do tasks at a steady rate: task `n` is the same in every run with the same seed. */
export class Load {
  readonly tally = newTally()
  readonly #clients: readonly Client[]
  readonly #random: KeyedRandom
  readonly #clock: Clock
  readonly #underWay = new Set<Promise<void>>()
  readonly #acknowledged: string[] = []
  #ended: TaskReport[] = []
  #tasks = 0

  private constructor(clients: readonly Client[], seed: number, clock: Clock) {
    this.#clients = clients
    this.#random = createKeyedRandom(seed)
    this.#clock = clock
  }

  /** Opens the agents' sessions. */
  static async at(url: string, seed: number, clock: Clock): Promise<Load> {
    const clients = Array.from({ length: AGENTS }, (_, index) => {
      return new Client({ name: `agent-${index + 1}`, version: '1.0.0' })
    })
    for (const client of clients) {
      const transport = new StreamableHTTPClientTransport(new URL(url))
      await client.connect(transport)
    }
    return new Load(clients, seed, clock)
  }

  /** Tasks that are not over. */
  get underWay(): number {
    return this.#underWay.size
  }

  /** Refs of orders that were placed, as far as the agents were told. */
  get acknowledged(): readonly string[] {
    return this.#acknowledged
  }

  /** Does one task: what is learned of a tool at its first call, such as its schemas, is known afterwards. */
  async warmUp(): Promise<void> {
    await this.#task(this.#tasks++)
  }

  /** Begins tasks until `stop` aborts; resolves when all of them are over. Never rejects. */
  async run(stop: Cancellation): Promise<void> {
    const startedAt = this.#clock.now()
    for (let begun = 0; !stop.aborted; begun++) {
      const dueMs = startedAt + (begun * 1_000) / TASKS_A_SECOND - this.#clock.now()
      if (dueMs > 0) await this.#clock.sleep(dueMs, stop).catch(() => undefined)
      if (this.#underWay.size >= MAX_UNDER_WAY) await Promise.race(this.#underWay)
      if (stop.aborted) break
      const task = this.#task(this.#tasks++).finally(() => this.#underWay.delete(task))
      this.#underWay.add(task)
    }
    await Promise.all(this.#underWay)
  }

  /** How the tasks ended that are over since this was asked last. */
  takeReports(): readonly TaskReport[] {
    const taken = this.#ended
    this.#ended = []
    return taken
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#clients.map((client) => client.close()))
  }

  async #task(index: number): Promise<void> {
    const intent = `task-${index}`
    const client = this.#clients[index % this.#clients.length]!
    let isGood = true
    for (const step of stepsOf(intent, this.#random)) {
      const ending = await endingOf(client, step, intent)
      this.tally.calls++
      this.tally[ending]++
      if (ending !== 'right') isGood = false
      else if (step.tool === 'place_order') this.#acknowledged.push(intent)
    }
    const outcome = isGood ? 'succeeded' : 'failed'
    this.tally[outcome]++
    this.#ended.push({ intent, outcome })
  }
}

type Ending = 'right' | 'wrong' | 'flagged' | 'errors'

/** Calls a tool as an agent does, and compares what comes back with what it should be. Never rejects. */
async function endingOf(client: Client, { server, tool, args }: Step, intent: string): Promise<Ending> {
  const params = { name: `${server}__${tool}`, arguments: args, _meta: { [INTENT_KEY]: intent } }
  let result
  try {
    // Not `callTool`: it checks answers by their schemas itself, and these agents are to get what comes.
    const request = { method: 'tools/call' as const, params }
    result = await client.request(request, CallToolResultSchema, { timeout: PATIENCE_MS })
  } catch {
    // The gateway counts the failure, too, whatever it was.
    return 'errors'
  }
  if (result.isError === true) return 'errors'
  if (isObject(result._meta) && PARTIAL_KEY in result._meta) return 'flagged'
  const expected = tools[server][tool]?.answer(args)
  const [block] = result.content
  const told = block?.type === 'text' ? parseJson(block.text) : undefined
  const isRight = isDeepStrictEqual(result.structuredContent, expected) && isDeepStrictEqual(told, expected)
  return isRight ? 'right' : 'wrong'
}
