import { z } from 'zod'
import { refusal } from '../../../approval/refusal.ts'
import type { GameDayRecord } from '../../../gamedays/record.ts'
import { gameDayAnswer } from '../gameday-summary.ts'
import { rounded } from '../run-history.ts'
import { bounded, defineTool, pageArguments, tableAnswer } from '../tool.ts'
import { quoted, quotedUpTo } from '../untrusted.ts'

const parts = ['summary', 'steps', 'observations', 'actions', 'events'] as const
type Table = Exclude<(typeof parts)[number], 'summary'>

export const getGameDay = defineTool({
  name: 'get_gameday',
  title: 'A GameDay',
  description:
    'Returns a GameDay: its summary (state, result, the experiment under way, and `waitsFor` with the command that a person must run), or the part `steps`, `observations`, `actions` or `events`.',
  access: 'read',
  input: z.strictObject({
    id: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe('Id of a GameDay, or name of its plan; default: the current, else the latest GameDay.'),
    part: z.enum(parts).default('summary'),
    ...pageArguments,
  }),
  output: z.looseObject({
    gameday: z.string().optional(),
    state: z.string().optional(),
    pollAfterMs: z.int().optional(),
    total: z.int().optional(),
    next: z.string().optional(),
    rows: z.array(z.looseObject({})).optional(),
    untrusted: z.looseObject({}).optional(),
  }),
  run({ id, part, ...page }, { operations }) {
    const record = operations.gameDays.get(id)
    if (record === undefined)
      return refusal('not_found', id === undefined ? 'there is no GameDay' : `there is no GameDay ${id}`, {
        see: 'list_plans',
      })
    const { text, data } = gameDayAnswer(record, operations)
    if (part === 'summary') return { ok: true, text, data: bounded(data) }
    return tableAnswer(rowsOf[part](record).map(rounded), page, text)
  },
})

const iso = (at: number | undefined) => (at === undefined ? undefined : new Date(at).toISOString())

/** The rows of each table. Persons and agents write the texts under `untrusted`. */
const rowsOf: Readonly<Record<Table, (record: GameDayRecord) => object[]>> = {
  steps: ({ steps, plan }) =>
    steps.map(({ name, state, runs, note, beganAt, result }) => ({
      experiment: name,
      state,
      afterMs: plan.experiments.find(({ spec }) => spec.name === name)?.after,
      run: runs.at(-1),
      beganAt: iso(beganAt),
      ...(result !== undefined && {
        runState: result.state,
        verdict: result.verdict,
        reasons: result.reasons,
        recoveredMs: result.recoveredMs,
        rtoMs: result.rtoMs,
        endedAt: iso(result.endedAt),
      }),
      untrusted: { note: quoted(result?.why ?? note) },
    })),
  observations: ({ observations }) =>
    observations.map(({ at, by, step, text }) => ({
      at: iso(at),
      experiment: step,
      untrusted: { by: quoted(by), text: quotedUpTo(1_000, text) },
    })),
  actions: ({ actions }) =>
    actions.map(({ number, at, by, what, owner, due, done }) => ({
      number,
      at: iso(at),
      due,
      doneAt: iso(done?.at),
      untrusted: { by: quoted(by), what: quotedUpTo(500, what), owner: quoted(owner) },
    })),
  events: ({ events }) =>
    events.map(({ at, what, why }) => ({ at: iso(at), what, untrusted: { why: quoted(why) } })),
}
