import { z } from 'zod'
import { refusal, type Refusal } from '../../../approval/refusal.ts'
import { line } from '../../../experiments/guarded/spec.ts'
import type { Order } from '../agent-gamedays.ts'
import { gameDayAnswer } from '../gameday-summary.ts'
import { bounded, defineTool } from '../tool.ts'

const actions = ['pause', 'resume', 'skip', 'stop', 'observe', 'add_action', 'close_action'] as const

/** One line. No pattern, because older validators of JSON Schema know no classes of Unicode. */
const oneLine = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .refine((text) => line(most).safeParse(text).success, 'expected one line without control characters')

const input = z.strictObject({
  id: z
    .string()
    .min(1)
    .max(64)
    .optional()
    .describe('Id of a GameDay, or name of its plan; default: the current, else the latest GameDay.'),
  action: z.enum(actions),
  text: oneLine(500)
    .optional()
    .describe('The observation, the action to add, or the reason of pause, skip and stop; in one line.'),
  owner: oneLine(200).optional().describe('For add_action: the person or team that does it.'),
  due: z.iso.date('expected a date such as 2026-12-24').optional().describe('For add_action.'),
  number: z.int().min(1).max(1_000).optional().describe('For close_action: the number of the action.'),
})

export const updateGameDay = defineTool({
  name: 'update_gameday',
  title: 'Steer a GameDay',
  description:
    'Changes a GameDay. `pause` and `stop` end the current run and clear its faults at once; any credential may do both, repeatedly and free. `resume` and `skip` are for the GameDays that you began, unless somebody else paused them; a paused experiment begins anew, with the same permissions. `observe`, `add_action` and `close_action` write the record.',
  access: 'stop',
  isDestructive: true,
  input,
  output: z.looseObject({ gameday: z.string(), state: z.string(), pollAfterMs: z.int().optional() }),
  run(given, { agent, operations }) {
    const order = orderOf(given)
    if ('ok' in order) return order
    const done = operations.gameDays.change(agent, given.id, order)
    if (!done.ok) return done
    const { text, data } = gameDayAnswer(done.gameDay, operations)
    return { ok: true, text, data: bounded(data) }
  },
})

function orderOf({ action, text, owner, due, number }: z.output<typeof input>): Order | Refusal {
  const needs = (what: string) => refusal('invalid', `${action} needs ${what}`)
  switch (action) {
    case 'pause':
    case 'skip':
    case 'stop':
      return { action, why: text ?? 'no reason given' }
    case 'resume':
      return { action }
    case 'observe':
      return text === undefined ? needs('text') : { action, text }
    case 'add_action':
      return text === undefined || owner === undefined
        ? needs('text and owner')
        : { action, what: text, owner, due }
    case 'close_action':
      return number === undefined ? needs('number') : { action, number }
  }
}
