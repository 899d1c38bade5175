import { z } from 'zod'
import { limit, line, planName, type Spec } from '../experiments/guarded/spec.ts'
import { duration } from '../units/duration.ts'
import { globPattern } from '../units/glob-schema.ts'

const environment = z
  .string()
  .regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
  .describe('The GameDay begins only if `gateway.environment` had this value when the gateway started.')

const scope = z.strictObject({
  servers: z
    .array(globPattern.max(256))
    .min(1)
    .max(32)
    .describe('Globs over server names. An experiment with another server is refused.'),
  environment: environment.optional(),
})

const stop = z
  .strictObject({
    neighbours: z
      .array(limit)
      .max(8)
      .default([])
      .describe('Limits on the calls of servers outside of the scope, over the last 10 seconds.'),
    incidents: z
      .boolean()
      .default(true)
      .describe('Whether a new incident of a server outside of the scope stops the GameDay.'),
  })
  .prefault({})
  .describe('The GameDay stops, and its faults are cleared, once one of these conditions is met.')

const communication = z.strictObject({
  before: line(500).optional().describe('The announcement: where, and how long before.'),
  during: line(500).optional().describe('Where the people talk during the GameDay.'),
  webhook: line(64)
    .optional()
    .describe('A webhook of `health.webhooks`, told of the begin, each pause and the end.'),
})

/** Returns the schema of a GameDay, over the schemas of an experiment and of its load. */
export function gameDayPlan(spec: z.ZodType<Spec>, load: z.ZodType<NonNullable<Spec['load']>>) {
  const step = z.strictObject({
    spec: spec.describe('The guarded experiment; in a file, `file: NAME.yaml` stands here.'),
    after: duration({ max: 86_400_000 })
      .default(0)
      .describe('Pause before the experiment, counted from the end of the one before, up to 24h.'),
    supports: z
      .array(z.string().regex(/^[a-z0-9][a-z0-9.-]{0,63}$/, 'expected the id of a requirement'))
      .max(32)
      .default([])
      .describe('Requirements of the compliance mappings that the experiment is meant for.'),
  })
  return z
    .strictObject({
      name: planName.describe('Later GameDays with this name are repetitions.'),
      title: line(200),
      roles: z
        .record(z.string().regex(/^[a-z][a-z0-9 _-]{0,39}$/, 'expected a role such as lead'), line(200))
        .refine((roles) => Object.keys(roles).length <= 32, 'expected at most 32 roles')
        .refine((roles) => Object.hasOwn(roles, 'lead'), 'expected a lead')
        .describe('Roles and the people or teams that have them; `lead` decides about pauses and the end.'),
      hypothesis: line(1_000).describe('The belief under test, in a sentence.'),
      scope,
      rto: duration({ min: 1_000, max: 300_000 })
        .optional()
        .describe('The promised recovery time of each experiment without `recovery.rto`, 1s to 5m.'),
      load: load.optional().describe('The load of each experiment without its own.'),
      stop,
      communication: communication.prefault({}),
      experiments: z.array(step).min(1).max(32),
      rerunOf: planName
        .optional()
        .describe('Name of an earlier GameDay for the comparison; default: the same name.'),
    })
    .superRefine(({ experiments, scope }, context) => {
      const refuse = (path: (string | number)[], message: string) =>
        context.addIssue({ code: 'custom', path: ['experiments', ...path], message })
      const taken = new Set<string>()
      experiments.forEach(({ spec: { name, targets } }, index) => {
        if (taken.has(name))
          refuse([index, 'spec', 'name'], `there is an experiment "${name}" in this GameDay already`)
        taken.add(name)
        if (scope.environment !== undefined && ![scope.environment, undefined].includes(targets.environment))
          refuse(
            [index, 'spec', 'targets', 'environment'],
            `expected ${scope.environment}, the environment of the GameDay's scope`,
          )
      })
    })
}

export type GameDayPlan = z.output<ReturnType<typeof gameDayPlan>>
export type Step = GameDayPlan['experiments'][number]

/** Returns an experiment with the GameDay's load, environment and recovery time, where it has none of its own. */
export function specOf({ rto, load, scope }: GameDayPlan, { spec }: Step): Spec {
  return {
    ...spec,
    targets: { ...spec.targets, environment: spec.targets.environment ?? scope.environment },
    recovery: { ...spec.recovery, rto: spec.recovery.rto ?? rto },
    load: spec.load ?? load,
  }
}
