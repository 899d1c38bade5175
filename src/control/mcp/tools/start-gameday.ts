import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import { gameDayAnswer } from '../gameday-summary.ts'
import { bounded, defineTool } from '../tool.ts'
import { startKey } from './start-run.ts'

/** Longest words about the mistakes of a plan, in characters. */
const LONGEST_WORDS = 2_000

export const startGameDay = defineTool({
  name: 'start_gameday',
  title: 'Start a GameDay',
  description:
    'Begins a GameDay: the experiments of its plan, one after the other. Gives no further permission: each run is a proposal of yours, and begins inside a signed envelope, or waits until a person approves. The same `key` returns the same GameDay. It goes on if you leave.',
  access: 'write',
  isDestructive: true,
  isIdempotent: true,
  input: z.strictObject({
    plan: z.string().min(1).max(64).describe('Name of a plan from list_plans with kind gameday.'),
    key: startKey,
  }),
  output: z.looseObject({ gameday: z.string(), state: z.string(), pollAfterMs: z.int().optional() }),
  async run({ plan: name, key }, { agent, operations }) {
    const found = await operations.plans.find(name, 'gameday')
    if (found === undefined)
      return refusal('not_found', `there is no GameDay ${name} among the plans`, { see: 'list_plans' })
    if (!found.ok)
      return refusal(
        'invalid',
        `the GameDay ${name} cannot be used: ${found.problems.join('; ').slice(0, LONGEST_WORDS)}`,
      )
    const started = await operations.gameDays.start(agent, found.plan, key)
    if (!started.ok) return started
    const { text, data } = gameDayAnswer(started.gameDay, operations)
    return { ok: true, text: `${text} Poll get_gameday.`, data: bounded(data) }
  },
})
