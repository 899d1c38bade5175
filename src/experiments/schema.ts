import { z } from 'zod'
import { duration } from '../units/duration.ts'
import { globPattern as glob } from '../units/glob-schema.ts'
import { metricNames, metricOf } from './metrics.ts'

const name = z
  .string()
  .regex(/^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/, 'expected 1 to 40 of A-Z a-z 0-9 _ -, without - in front')

const arms = z
  .record(name, z.string().min(1))
  .refine((given) => Object.keys(given).length >= 2 && Object.keys(given).length <= 8, {
    error: 'expected 2 to 8 arms, each with a name and a policy set',
  })

const match = z.strictObject({
  server: glob.optional().describe('Glob over server names.'),
  tool: glob.optional().describe('Glob over tool names, as their server knows them.'),
  tenant: glob.optional().describe('Glob over tenants.'),
})

const metric = z.enum(metricNames)

const guardrail = z.strictObject({
  metric: metric.describe('The metric that must not get worse.'),
  margin: z
    .number()
    .min(0)
    .describe('Tolerated worsening, in the unit of the metric: shares in [0, 1], latencies in milliseconds.'),
})

const WEIGHTS = 1e-6

export const experiment = z
  .strictObject({
    name: name.describe('Unique; shows up in metrics, spans and the report.'),
    arms: arms.describe(
      'The arms by name, each with its policy set (`default`: the unnamed set). All other arms are compared with the arm `control`, or else with the first arm.',
    ),
    match: match
      .default({})
      .describe('The tool calls that take part: all patterns must match. Default: all tool calls.'),
    assignBy: z
      .enum(['intent', 'session', 'tenant', 'header', 'agent'])
      .default('intent')
      .describe(
        'The unit of assignment, which stays in its arm: a task of an agent, a session, a tenant, or a value of `header`. `agent`: tasks, each in the arm named by its agent in `_meta["dev.breakwater/arm"]`; calls without an arm or a task take no part.',
      ),
    header: z
      .string()
      .regex(/^[a-z0-9!#$%&'*+.^_`|~-]+$/, 'expected the name of a header, in lower case')
      .optional()
      .describe('The header whose values are assigned to arms, for `assignBy: header`.'),
    fallback: z
      .enum(['session', 'tenant', 'exclude'])
      .default('session')
      .describe(
        'Assigns calls without the unit of `assignBy`: by their session (or tenant, without a session), by their tenant, or not at all (`exclude`: the calls take no part).',
      ),
    share: z
      .number()
      .gt(0)
      .max(1)
      .default(1)
      .describe('Share of the matching units that take part, in (0, 1].'),
    split: z
      .record(name, z.number().gt(0).lt(1))
      .optional()
      .describe('Share of each arm among the units that take part; the sum is 1. Default: equal shares.'),
    salt: z
      .string()
      .max(64)
      .optional()
      .describe('Another salt assigns all units anew. Default: the name of the experiment.'),
    metric: metric.default('tasks_without_failure').describe('The deciding metric.'),
    minimumEffect: z
      .number()
      .min(0)
      .optional()
      .describe(
        'Smallest relevant difference of the metric, in its unit: shares in [0, 1], latencies in milliseconds. Default: 0.02 for shares; required for other metrics.',
      ),
    guardrails: z
      .array(guardrail)
      .max(8)
      .default([])
      .describe('Metrics that must not get worse: an arm that does harm ends the experiment.'),
    minimumUnits: z
      .int()
      .min(10)
      .max(1_000_000)
      .default(200)
      .describe('Units (usually tasks) each arm needs before the verdict may end the experiment.'),
    maxDuration: duration({ min: 1_000, max: 30 * 86_400_000 })
      .default(86_400_000)
      .describe('The experiment ends after this time, decided or not.'),
    active: z
      .boolean()
      .default(true)
      .describe(
        'Whether the experiment starts once the config is in force; `false`: an operator must start it.',
      ),
  })
  .superRefine((given, context) => {
    const refuse = (path: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path, message })
    const names = Object.keys(given.arms)
    const isOfTasks = given.assignBy === 'intent' || given.assignBy === 'agent'
    if (given.metric === 'task_success' && !isOfTasks)
      refuse(['metric'], `task_success needs tasks, but "assignBy" is ${given.assignBy}`)
    given.guardrails.forEach((guardrail, index) => {
      if (metricOf(guardrail.metric).estimator.kind === 'quantile')
        refuse(
          ['guardrails', index, 'metric'],
          `${guardrail.metric} is known only at the end and cannot be a guardrail: use mean_ms`,
        )
    })
    if (given.assignBy === 'header' && given.header === undefined)
      refuse(['assignBy'], 'needs "header": the header with the values to assign')
    if (given.assignBy !== 'header' && given.header !== undefined)
      refuse(['header'], `has no use: "assignBy" is ${given.assignBy}`)
    if (given.minimumEffect === undefined && metricOf(given.metric).unit !== 'points')
      refuse(['metric'], `${given.metric} needs "minimumEffect": the smallest difference that matters`)
    if (given.split === undefined) return
    for (const name of Object.keys(given.split))
      if (!names.includes(name)) refuse(['split', name], `there is no arm "${name}"`)
    for (const name of names)
      if (!Object.hasOwn(given.split, name)) refuse(['split'], `the share of arm "${name}" is missing`)
    const sum = Object.values(given.split).reduce((total, part) => total + part, 0)
    if (Math.abs(sum - 1) > WEIGHTS)
      refuse(['split'], `expected shares that add up to 1, found ${Number(sum.toFixed(6))}`)
  })

export type Experiment = z.output<typeof experiment>

export const experiments = z
  .array(experiment)
  .max(16)
  .default([])
  .describe('Comparisons of policy sets: each set gets a part of the traffic.')

/** Returns the arm's name outside the experiment: in metrics, spans and state. */
export const armName = (experiment: string, arm: string): string => `${experiment}/${arm}`

export const armNames = (all: readonly Pick<Experiment, 'name' | 'arms'>[]): string[] =>
  all.flatMap(({ name, arms }) => Object.keys(arms).map((arm) => armName(name, arm)))

/** Returns the arm with which all other arms are compared: `control`, or else the first arm. */
export function controlOf({ arms }: Pick<Experiment, 'arms'>): string {
  const [first = ''] = Object.keys(arms)
  return Object.hasOwn(arms, 'control') ? 'control' : first
}

/** Returns an arm for sentences: its policy set, with the arm's name when several arms share the set. */
export function armInWords({ arms }: Pick<Experiment, 'arms'>, arm: string): string {
  const set = arms[arm]!
  return Object.values(arms).filter((other) => other === set).length === 1 ? set : `${set} (${arm})`
}

/** Returns the share of each arm among the participating units, in (0, 1). */
export function splitOf({ arms, split }: Pick<Experiment, 'arms' | 'split'>): ReadonlyMap<string, number> {
  const names = Object.keys(arms)
  const own = new Map(Object.entries(split ?? {}))
  return new Map(names.map((name) => [name, own.get(name) ?? 1 / names.length]))
}

/** Returns the smallest relevant difference, in the unit of the deciding metric. */
export const minimumEffectOf = ({ minimumEffect }: Pick<Experiment, 'minimumEffect'>): number =>
  minimumEffect ?? 0.02
