import { createHash } from 'node:crypto'
import { z } from 'zod'
import { type Claim, claims as claimsAbout, examples, numberIn } from '../../claims/claim.ts'
import { subjects, type Unit } from '../../claims/subjects.ts'
import type { Millis } from '../../mesh/clock.ts'
import { canonicalJson } from '../../protocol/canonical-json.ts'
import { globPattern } from '../../units/glob-schema.ts'
import { duration } from '../../units/duration.ts'
import { callMetrics, type Measurable, measurable } from './claims.ts'

export const states = [
  /** The run waits for approval. */
  'pending_approval',
  'running',
  /** All stages were played; the gate and the hypothesis held. */
  'completed',
  /** The gate held, but the hypothesis did not. */
  'deviated',
  /** The gate or an operator ended the run. */
  'aborted',
  /** The run could not continue, or the gateway ended. */
  'failed',
  /** The run proves nothing: nothing was injected, the engine failed, or nothing could be measured. */
  'invalid',
  /** Too few calls were measured. */
  'inconclusive',
] as const

export type State = (typeof states)[number]

export type EndState = Exclude<State, 'pending_approval' | 'running'>

const endStates = ['completed', 'deviated', 'aborted', 'failed', 'invalid', 'inconclusive'] as const

const text = (max: number) => z.string().trim().min(1).max(max)

/** A line without control or direction characters, so lists, logs and reports show exactly the written text. */
export const line = (max: number) =>
  text(max).regex(/^[^\p{Cc}\u2028-\u202e\u2066-\u2069]*$/u, 'expected one line without control characters')

/** The name of an experiment or a GameDay. */
export const planName = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$/,
    'expected a name: 1 to 40 of A-Z a-z 0-9 _ -, without - in front',
  )

const glob = globPattern.max(256)

/** Reads a number with its unit (`5%`, `500ms`). */
const written = (unit: 'ms' | 'share' | 'count') =>
  z.union([z.number(), z.string()], `expected ${examples[unit]}`).transform((given, context): number => {
    const value = numberIn(unit, given)
    if (value !== undefined) return value
    context.addIssue({ code: 'custom', message: `expected ${examples[unit]}` })
    return z.NEVER
  })

const claims = claimsAbout(measurable)

const hypothesis = z.strictObject({
  title: line(500).optional().describe('The belief under test, in a sentence.'),
  steadyState: claims.describe(
    'Claims that must hold before any injection (otherwise nothing is injected) and again afterwards: `p95 < 500ms`, `error_ratio < 1%`, `uptime > 30s`, `status = up`, `probe_failures = 0`.',
  ),
  during: claims
    .optional()
    .describe(
      'Claims that must hold for the treatment during faults. Default: the claims of `steadyState` about calls.',
    ),
})

const targets = z.strictObject({
  server: glob.describe('Glob over server names. Servers that are `protected` are never targets.'),
  tool: glob.optional().describe('Glob over tool names, as their server knows them.'),
  tenant: glob.optional().describe('Glob over tenants.'),
  environment: z
    .string()
    .regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
    .optional()
    .describe('The run is allowed only if `gateway.environment` had this value when the gateway started.'),
})

const setName = z.string().min(1).max(64)

const armSets = z.strictObject({
  control: setName.default('default').describe('The policy set of calls without faults.'),
  treatment: setName.default('default').describe('The policy set of calls that get faults.'),
})

/** The treatment never gets all calls: without a control, the effect of the faults is unknown. */
const MOST_SHARE = 0.9

const share = written('share').refine((value) => value > 0 && value <= MOST_SHARE, {
  error: 'expected a share above 0 and up to 90%',
})

const stage = z.strictObject({
  share: share.describe('Share of the matching calls in the treatment: 10% or 0.1, up to 90%.'),
  duration: duration({ min: 1_000, max: 3_600_000 }).describe('Length of the stage, 1s to 1h.'),
})

/**
 * Limits by unit: a rule whose `above` is at the limit or higher can never be broken. Calls have far fewer than 100
 * attempts.
 */
const unreachable: Partial<Record<Unit, { readonly from: number; readonly told: string }>> = {
  share: { from: 1, told: 'a share below 100%' },
  count: { from: 100, told: 'less than 100 attempts' },
}

const above = z.union([z.number(), z.string()], 'expected a number')
const metric = z.enum(callMetrics)
const forMs = duration({ max: 600_000 }).default(0)

/** Reads `above` in the unit of the metric; rejects values from the unit's limit on. */
const withAbove =
  (limits: typeof unreachable) =>
  <Given extends { readonly metric: z.output<typeof metric>; readonly above: number | string }>(
    given: Given,
    context: z.RefinementCtx,
  ): Omit<Given, 'above'> & { readonly above: number } => {
    const { unit } = subjects[given.metric]
    const value = numberIn(unit, given.above)
    const { from = Infinity, told = '' } = limits[unit] ?? {}
    if (value !== undefined && value < from) return { ...given, above: value }
    const message =
      value === undefined ? `expected ${examples[unit]}` : `expected ${told}: higher values are never reached`
    context.addIssue({ code: 'custom', path: ['above'], message, input: given.above })
    return z.NEVER
  }

/** A limit on a metric, exceeded without a break for a time. */
export const limit = z
  .strictObject({
    metric: metric.describe('The measured metric.'),
    above: above.describe('The limit: 500ms, 5% or 2, depending on the metric.'),
    for: forMs.describe('How long the limit must be exceeded without a break, up to 10m.'),
  })
  .transform(withAbove(unreachable))

const rule = z
  .strictObject({
    metric: metric.describe('The measured metric.'),
    above: above.describe('The limit: 500ms, 5% or 2, depending on the metric.'),
    of: z
      .enum(['treatment', 'control', 'difference'])
      .default('treatment')
      .describe('The measured arm; `difference`: treatment minus control.'),
    for: forMs.describe('How long the limit must be exceeded without a break, up to 10m.'),
  })
  .transform(withAbove(unreachable))

const gate = z.strictObject({
  rollbackOn: z
    .array(rule)
    .min(1, 'expected at least one rule')
    .max(16)
    .describe('Rules: the run ends and is rolled back once a rule is broken.'),
  over: duration({ min: 1_000, max: 60_000 })
    .default(5_000)
    .describe('The sliding window in which metrics are measured, 1s to 60s.'),
  minimum: z.int().min(1).max(100_000).default(10).describe('Calls of an arm needed to judge a window.'),
  missing: duration({ min: 1_000, max: 300_000 })
    .default(30_000)
    .describe(
      'The run ends when no call has ended, or a rule was not measurable, for this time: a blind run proves nothing.',
    ),
})

const learning = z.discriminatedUnion('method', [
  z.strictObject({ method: z.literal('static'), metric, above, for: forMs }).transform(withAbove({})),
  z.strictObject({
    method: z
      .literal('sigma')
      .describe(
        'Threshold: mean of the metric over the seconds of the baseline, plus k standard deviations.',
      ),
    metric,
    k: z.number().gt(0).max(20).default(3),
    for: forMs,
  }),
  z.strictObject({
    method: z
      .literal('percentile')
      .describe('Threshold: a percentile of the metric over the seconds of the baseline, times a factor.'),
    metric,
    percentile: z.number().min(1).max(100).default(95),
    factor: z.number().gt(0).max(100).default(2),
    for: forMs,
  }),
  z.strictObject({
    method: z
      .literal('iqr')
      .describe(
        'Threshold: third quartile of the metric over the seconds of the baseline, plus k interquartile ranges.',
      ),
    metric,
    k: z.number().gt(0).max(20).default(3),
    for: forMs,
  }),
])

const baseline = z
  .strictObject({
    duration: duration({ min: 1_000, max: 3_600_000 })
      .default(30_000)
      .describe('How long calls are measured before any injection, 1s to 1h.'),
    minimum: z.int().min(1).max(1_000_000).default(20).describe('Minimum number of calls in the baseline.'),
    learn: z
      .array(learning)
      .max(8)
      .default([])
      .describe('Thresholds learned from the baseline, as rules of the gate for the treatment.'),
  })
  .prefault({})

const estimate = z
  .strictObject({
    outcome: z.enum(endStates).optional().describe('How the run will end.'),
    detect: duration({ max: 3_600_000 })
      .optional()
      .describe('Time from the first effect to the first sign noticed by the gateway.'),
    recover: duration({ max: 3_600_000 })
      .optional()
      .describe(
        'Time from the first call affected by a fault to the steady state after the faults, stages included.',
      ),
    errorRatio: written('share').optional().describe('Error ratio of the treatment in the last stage.'),
    p95: written('ms').optional().describe('p95 of the treatment in the last stage.'),
  })
  .prefault({})
  .describe('Estimates of the author, written before the run; the report compares each with the result.')

/** Longest wait for the steady state after the faults, in milliseconds. */
const LONGEST_RECOVERY_MS: Millis = 300_000

/** Parts of the schema defined in other folders. */
export interface SpecParts {
  /** A fault as in a plan, without `ttl`. */
  readonly fault: z.ZodType<SpecFault>
  /** A workload as in `breakwater compare`. */
  readonly workload: z.ZodType<object>
}

/** The fields of a fault known to a run. */
export interface SpecFault {
  readonly name: string
  readonly type: string
  readonly rate: number
  readonly match?: object | undefined
  readonly [own: string]: unknown
}

/** Default stages. */
const usualStages = [0.1, 0.25, 0.5].map((share) => ({ share, duration: 60_000 }))

/** Returns the schema of a load that the gateway plays itself. */
export const loadSchema = (workload: SpecParts['workload']) =>
  z.strictObject({
    workload: workload.describe(
      'Tasks played by the gateway itself, as in a workload of `breakwater compare`.',
    ),
    concurrency: z.int().min(1).max(256).default(8).describe('Tasks under way at a time.'),
    seed: z
      .int()
      .min(0)
      .max(2 ** 32 - 1)
      .default(1)
      .describe('Seed of all random draws for tasks.'),
  })

export function specSchema({ fault, workload }: SpecParts) {
  return z
    .strictObject({
      name: planName.describe('Unique among all experiments of a gateway.'),
      title: line(200).optional(),
      owner: line(200).describe('The person or team responsible.'),
      reason: text(1_000).describe('Why the experiment is run.'),
      hypothesis,
      targets,
      assignBy: z
        .enum(['intent', 'session', 'tenant'])
        .default('intent')
        .describe('The unit of assignment to an arm: a task of an agent, a session, or a tenant.'),
      arms: armSets.prefault({}),
      faults: z
        .array(fault)
        .max(32)
        .default([])
        .describe(
          'Faults as in a plan, but without server, arm and ttl: they hit the treatment at the targets.',
        ),
      stages: z.array(stage).min(1).max(10).default(usualStages),
      gate: gate.describe('Limits that end the run, whatever else happens.'),
      baseline,
      recovery: z
        .strictObject({
          within: duration({ min: 1_000, max: LONGEST_RECOVERY_MS })
            .default(LONGEST_RECOVERY_MS)
            .describe('Longest wait for the steady state to come back, up to 5m.'),
          over: duration({ min: 1_000, max: 60_000 })
            .default(3_000)
            .describe('How long the steady state must hold to count as back, 1s to 60s.'),
          rto: duration({ min: 1, max: LONGEST_RECOVERY_MS })
            .optional()
            .describe(
              'The promised recovery time, from the first call affected by a fault: a grade is never better than the share of runs within this time.',
            ),
        })
        .prefault({}),
      approval: z
        .enum(['none', 'required'])
        .default('none')
        .describe(
          '`required`: the run waits until somebody else approves the run; with trusted keys, by a signature. Always required for a first stage above 25%, or a later stage above 50%.',
        ),
      estimate,
      every: duration({ min: 3_600_000, max: 5 * 365 * 86_400_000 })
        .optional()
        .describe('How often the experiment is due, 1h to 1825d; `breakwater runs due` lists overdue ones.'),
      load: loadSchema(workload).optional(),
    })
    .superRefine((given, context) => {
      const refuse = (path: (string | number)[], message: string) =>
        context.addIssue({ code: 'custom', path, message })
      given.stages.forEach(({ share: part }, index) => {
        const before = given.stages[index - 1]?.share
        if (before !== undefined && part < before)
          refuse(
            ['stages', index, 'share'],
            `stages must not shrink: stage ${index} has ${before * 100}%, and the next stage ${part * 100}%`,
          )
      })
      const stagesMs = given.stages.reduce((sum, { duration: ms }) => sum + ms, 0)
      for (const [path, rules] of [
        [['gate', 'rollbackOn'], given.gate.rollbackOn],
        [['baseline', 'learn'], given.baseline.learn],
      ] as const)
        rules.forEach((one, index) => {
          if (one.for >= stagesMs)
            refuse([...path, index, 'for'], 'expected less than the length of all stages together')
          if ('above' in one && subjects[one.metric].unit === 'ms' && one.above >= stagesMs)
            refuse(
              [...path, index, 'above'],
              'expected less than the length of all stages together: higher values are never reached',
            )
        })
      if (given.gate.rollbackOn.every(({ of }) => of === 'control') && given.baseline.learn.length === 0)
        refuse(['gate', 'rollbackOn'], 'expected a rule about the treatment or the difference')
      if (given.recovery.within <= given.recovery.over)
        refuse(['recovery', 'within'], 'expected more than "over", the time the steady state must hold')
      const { control, treatment } = given.arms
      if (given.faults.length === 0 && control === treatment)
        refuse(['faults'], 'expected faults, or two policy sets: otherwise the arms do not differ')
      const taken = new Set<string>()
      given.faults.forEach((one, index) => {
        if (taken.has(one.name)) refuse(['faults', index, 'name'], `there is a fault "${one.name}" already`)
        taken.add(one.name)
        for (const key of ['server', 'arm'])
          if (one.match !== undefined && key in one.match && (one.match as never)[key] !== undefined)
            refuse(
              ['faults', index, 'match', key],
              'not allowed here: the run sets server and arm itself, from "targets"',
            )
      })
    })
}

export type Spec = z.output<ReturnType<typeof specSchema>>

/** Returns the claims for the treatment during faults; default: steady-state claims about calls. */
export const claimsDuring = ({ hypothesis }: Pick<Spec, 'hypothesis'>): readonly Claim<Measurable>[] =>
  hypothesis.during ??
  hypothesis.steadyState.filter(({ subject }) => (callMetrics as readonly string[]).includes(subject))

/** Returns a hash of all that a run does, without its texts: runs of the same shape are repetitions. */
export function shapeOf(spec: Spec): string {
  const { targets, assignBy, arms, faults, stages, gate, baseline, recovery, load, hypothesis } = spec
  const { steadyState, during } = hypothesis
  return hashOf({
    targets,
    assignBy,
    arms,
    faults,
    stages,
    gate,
    baseline,
    recovery,
    load,
    steadyState,
    during,
  })
}

/** Returns 16 hex digits of SHA-256; the order of keys does not matter. */
export const hashOf = (value: unknown): string =>
  createHash('sha256')
    .update(canonicalJson(value) ?? '')
    .digest('hex')
    .slice(0, 16)

/** Returns the longest time from the start of the baseline to the end of the last stage, in milliseconds. */
export const lengthOf = ({ baseline: before, stages }: Pick<Spec, 'baseline' | 'stages'>): Millis =>
  before.duration + stages.reduce((sum, { duration: ms }) => sum + ms, 0)
