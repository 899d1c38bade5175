import { isDeepStrictEqual } from 'node:util'
import { type Cancellation, never } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { createKeyedRandom, type KeyedRandom } from '../mesh/keyed-random.ts'
import { isObject, parseJson } from '../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../protocol/meta.ts'
import { INTENT_KEY } from '../protocol/task.ts'
import { type Client, closeAll, openAll, SessionClient } from './client.ts'
import { type Args, docs, orders } from './shop/tools.ts'
import { steadily, type Within } from './timing.ts'

/** Number of sessions; the tasks are spread over the sessions. */
const AGENTS = 4

/** Tasks started per second. */
const TASKS_A_SECOND = 5

/** Maximum number of tasks under way at a time; further tasks wait. */
const MAX_UNDER_WAY = 64

/** Timeout of an agent's call, in milliseconds: longer than the gateway's, with or without policies. */
const PATIENCE_MS: Millis = 30_000

/** The agents' own counts of their calls and tasks, independent of the gateway. */
export interface Tally {
  calls: number
  /** Calls with the expected answer. */
  right: number
  /** Calls with a wrong answer that was not marked as wrong. */
  wrong: number
  /** Calls with an answer marked as incomplete. */
  flagged: number
  /** Calls with an error of the protocol or of the tool. */
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

/** The end of a task, in the format of `/admin/outcomes`. */
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

/** Returns the calls of a task in order: five reads and a write. */
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

/** Agents with tasks at a steady rate: task `n` is the same in every run with the same seed. */
export class Load {
  readonly tally = newTally()
  readonly #clients: readonly Client[]
  readonly #random: KeyedRandom
  readonly #clock: Clock
  readonly #acknowledged: string[] = []
  #ended: TaskReport[] = []
  #tasks = 0

  private constructor(clients: readonly Client[], seed: number, clock: Clock) {
    this.#clients = clients
    this.#random = createKeyedRandom(seed)
    this.#clock = clock
  }

  /** Opens the agents' sessions. When opening fails, closes all sessions and rejects with the reason. */
  static async at(url: string, seed: number, clock: Clock): Promise<Load> {
    const clients = Array.from({ length: AGENTS }, (_, index) => {
      return new SessionClient({ url, name: `agent-${index + 1}`, clock, stop: never })
    })
    await openAll(clients, url)
    return new Load(clients, seed, clock)
  }

  /** The `ref` of each order that was confirmed to an agent. */
  get acknowledged(): readonly string[] {
    return this.#acknowledged
  }

  /** Does a task before the run, so that the gateway knows the tools' schemas. */
  async warmUp(): Promise<void> {
    await this.#task(this.#tasks++)
  }

  /** Begins tasks until `stop` aborts; resolves when all tasks are over. Never rejects. */
  run(stop: Cancellation): Promise<void> {
    const pace = { clock: this.#clock, rate: TASKS_A_SECOND, concurrent: MAX_UNDER_WAY }
    return steadily(pace, stop, () => this.#task(this.#tasks++))
  }

  /** Returns the tasks finished since the previous request. */
  takeReports(): readonly TaskReport[] {
    const taken = this.#ended
    this.#ended = []
    return taken
  }

  async close(): Promise<void> {
    await closeAll(this.#clients)
  }

  async #task(index: number): Promise<void> {
    const intent = `task-${index}`
    const client = this.#clients[index % this.#clients.length]!
    let isGood = true
    for (const step of stepsOf(intent, this.#random)) {
      const ending = await endingOf(client, step, intent, { clock: this.#clock, ms: PATIENCE_MS })
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

/** Calls a tool as an agent does, and compares the answer with the expected answer. Never rejects. */
async function endingOf(
  client: Client,
  { server, tool, args }: Step,
  intent: string,
  within: Within,
): Promise<Ending> {
  const meta = { [INTENT_KEY]: intent }
  const answer = await client.call({ name: `${server}__${tool}`, arguments: args, meta }, within)
  // The gateway also counts every failed call as an error, whatever the cause.
  if (!answer.ok || answer.result.isError === true) return 'errors'
  const { _meta, content, structuredContent } = answer.result
  if (isObject(_meta) && PARTIAL_KEY in _meta) return 'flagged'
  const expected = tools[server][tool]?.answer(args)
  const block: unknown = Array.isArray(content) ? content[0] : undefined
  const told = isObject(block) && block.type === 'text' ? parseJson(String(block.text)) : undefined
  const isRight = isDeepStrictEqual(structuredContent, expected) && isDeepStrictEqual(told, expected)
  return isRight ? 'right' : 'wrong'
}
