import { setTimeout } from 'node:timers/promises'
import { RawClient } from '../../test/e2e/support/raw-client.ts'
import { report, tagged, type Ending } from '../check/load.ts'
import { playRun } from '../check/guarded-run.ts'
import { command, type World } from '../check/world.ts'

/** Length of each part, in seconds. The warm-up gives rates enough data before the visible part. */
const PARTS = { warmUp: 20, before: 60, during: 60, after: 50, reloaded: 30 }

/** Length of the drawn part, in seconds. */
export const STORY_S = PARTS.before + PARTS.during + PARTS.after + PARTS.reloaded

/** Length of the stage of the guarded run in the first minute, in seconds. */
const STAGE_S = 20

/** Pause between the tasks of an agent, in milliseconds. */
const PAUSE_MS = 250

/** Failure rates of the server itself: rare, and frequent. */
const well = {
  read: { delayMs: 8, reset: 0.004 },
  write: { delayMs: 15, failing: 0.005 },
  typed: { delayMs: 20, invalid: 0.002, failing: 0.002 },
}
const badly = {
  read: { delayMs: 8, reset: 0.1 },
  write: { delayMs: 20, failing: 0.5 },
  typed: { delayMs: 20, invalid: 0.15, failing: 0.35 },
}

/**
 * Agents work all the time. In the first minute a guarded run is under way at the steady server. In the second minute faults are armed, and the server fails by itself as well; then both
 * end, and last the config is reloaded. Resolves to the start of the first minute, in seconds since the epoch.
 */
export async function tell(world: World): Promise<number> {
  const agents = await Agents.come(world)
  await world.flaky.behave(well)
  await command(world, '/admin/chaos/disarm')
  await agents.work(PARTS.warmUp)
  const start = Date.now() / 1_000
  await Promise.all([agents.work(PARTS.before), playRun(world, STAGE_S)])
  await command(world, '/admin/chaos/arm')
  await world.flaky.behave(badly)
  await agents.work(PARTS.during)
  await command(world, '/admin/chaos/disarm')
  await world.flaky.behave(well)
  await agents.work(PARTS.after)
  await command(world, '/admin/reload')
  await agents.work(PARTS.reloaded)
  return start
}

type Sessions = readonly [flaky: RawClient, steady: RawClient]

/** Two agents, each with a session at either server. */
class Agents {
  readonly #world: World
  readonly #clients: readonly Sessions[]
  #tasks = 0

  private constructor(world: World, clients: readonly Sessions[]) {
    this.#world = world
    this.#clients = clients
  }

  static async come(world: World): Promise<Agents> {
    const open = () => Promise.all([RawClient.open(world.mcp), RawClient.open(world.steady)])
    return new Agents(world, await Promise.all([open(), open()]))
  }

  /** Plays tasks in turn, for `seconds`. */
  async work(seconds: number): Promise<void> {
    const stop = performance.now() + seconds * 1_000
    await Promise.all(
      this.#clients.map(async ([flaky, steady]) => {
        while (performance.now() < stop) {
          await this.#task(flaky, steady, this.#tasks++)
          await setTimeout(PAUSE_MS)
        }
      }),
    )
  }

  async #task(flaky: RawClient, steady: RawClient, nth: number): Promise<void> {
    const intent = `task-${nth}`
    const every = (times: number) => nth % times === 0
    const call = (tool: string, args: object = {}, meta: object = {}) =>
      isRight(flaky, tool, args, { ...tagged(intent), ...meta })
    const right = await Promise.all([
      ...Array.from({ length: 4 }, () => call('typed')),
      call('read'),
      ...Array.from({ length: 2 }, () => isRight(steady, 'typed', {}, tagged(intent))),
      ...(every(2) ? [call('write')] : []),
      // The same order twice.
      ...(every(4) ? [call('read', {}, key(nth)), call('read', {}, key(nth))] : []),
      // The gateway has learned that the tool takes longer than the deadline.
      ...(every(50) ? [call('typed', {}, { 'dev.breakwater/deadline-ms': 8 })] : []),
      ...(every(10) ? [flaky.request('prompts/list').then(() => true)] : []),
      // Mistakes of the agent.
      ...(every(15) ? [isRight(flaky, 'made_up', {}, {}), isRight(flaky, 'typed', { n: 'one' }, {})] : []),
    ])
    // Some agents recover from failures, and some fail for other reasons.
    const failed = right.includes(false) ? !every(3) : every(20)
    const ending: Ending = { intent, outcome: failed ? 'failed' : 'succeeded' }
    const unknown: Ending = { intent: 'made up', outcome: 'failed' }
    if (every(2)) await report(this.#world, every(40) ? [ending, unknown] : [ending])
  }
}

const key = (nth: number) => ({ 'dev.breakwater/idempotency-key': `order-${nth}` })

/** Calls a tool. Resolves to true if its answer was no error. Some faults produce invalid answers. */
async function isRight(client: RawClient, name: string, args: object, _meta: object): Promise<boolean> {
  const answer = await client.request('tools/call', { name, arguments: args, _meta }).catch(() => undefined)
  const { error, result } = (answer ?? {}) as { error?: object; result?: { isError?: boolean } }
  return error === undefined && result !== undefined && result.isError !== true
}
