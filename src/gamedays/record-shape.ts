import { z } from 'zod'
import { states } from '../experiments/guarded/spec.ts'
import { reasonNames, verdicts } from '../evidence/verdict-names.ts'
import { globPattern } from '../units/glob-schema.ts'
import { type GameDayRecord, gameDayStates, stepStates } from './record.ts'

const text = z.string().max(100_000)
const count = z.number().min(0)
/** Milliseconds since the Unix epoch, within the range of `Date`. */
const moment = z.number().min(0).max(8.64e15)

const plan = z.looseObject({
  name: text,
  title: text,
  roles: z.record(z.string(), text),
  hypothesis: text,
  scope: z.looseObject({ servers: z.array(globPattern) }),
  stop: z.looseObject({
    neighbours: z.array(z.looseObject({ metric: text, above: z.number(), for: count })),
    incidents: z.boolean(),
  }),
  communication: z.looseObject({ webhook: text.optional() }),
  experiments: z.array(z.looseObject({ spec: z.looseObject({ name: text }), after: count })),
})

const result = z.looseObject({
  state: z.enum(states),
  verdict: z.enum(verdicts),
  reasons: z.array(z.enum(reasonNames)),
  why: text,
  recoveredMs: count.optional(),
  rtoMs: count.optional(),
  endedAt: moment,
})

const step = z.looseObject({
  name: text,
  state: z.enum(stepStates),
  runs: z.array(text),
  note: text,
  beganAt: moment.optional(),
  result: result.optional(),
})

const actor = z.looseObject({ at: moment, by: text })

/** Every field that is read anywhere, except those of experiments: a run checks its own spec. */
const record = z
  .looseObject({
    format: z.literal(1),
    id: text,
    plan,
    isComplete: z.boolean(),
    version: text,
    environment: text,
    by: text,
    isOfAgent: z.boolean(),
    state: z.enum(gameDayStates),
    reason: text,
    startedAt: moment,
    endedAt: moment.optional(),
    steps: z.array(step),
    pauses: z.array(z.looseObject({ from: moment, until: moment.optional(), by: text, why: text })),
    observations: z.array(actor.extend({ text, step: text.optional() })),
    actions: z.array(
      actor.extend({
        number: count,
        what: text,
        owner: text,
        due: text.optional(),
        done: actor.optional(),
      }),
    ),
    events: z.array(z.looseObject({ at: moment, what: text, why: text })),
  })
  .refine(({ plan: { experiments }, steps }) => {
    // Each step finds its experiment by the name.
    return (
      steps.length === experiments.length &&
      experiments.every(({ spec: { name } }, at) => name === steps[at]?.name)
    )
  })

/** Returns true when a value has all fields of a GameDay's record that are read anywhere. */
export const isGameDayRecord = (value: unknown): value is GameDayRecord => record.safeParse(value).success
