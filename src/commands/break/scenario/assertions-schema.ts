import { z } from 'zod'
import { claims } from '../../../claims/claim.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { reasons, stableCode } from '../../../mesh/errors.ts'
import { verdicts } from '../../../mesh/outcome.ts'
import { policies } from '../../../policies/index.ts'
import { duration } from '../../../units/duration.ts'
import { suggest } from '../../../units/suggest.ts'
import { measurable } from './measures.ts'

/** Reasons for ending calls, of the mesh and its policies. */
const reasonNames = [
  ...Object.keys(reasons),
  ...Object.values(policies).flatMap((policy) =>
    'reasons' in policy ? (policy.reasons ?? []).map(({ name }) => name) : [],
  ),
]

/** Endings of calls other than a good answer, as written in scenarios. */
const errorNames = [...reasonNames.map(stableCode), 'tool error', 'rpc error']

/**
 * Returns options for a check on a whole map. The check runs only without other issues: a mistyped key is reported
 * alone.
 */
const unlessEmpty = (error: string) => ({
  error,
  when: ({ issues }: { readonly issues: readonly unknown[] }) => issues.length === 0,
})

/** Whether a map has any value. */
const isSome = (value: object): boolean => Object.values(value).some((one) => one !== undefined)

/** Schema of a non-empty map. */
const some = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape).refine(isSome, unlessEmpty('asserts nothing: it is empty'))

/** A bound on a number with the natural range 0 to `most`. */
const bound = <Value extends z.ZodType<number>>(value: Value, about: string, most = Infinity) =>
  z
    .strictObject({ atLeast: value.optional(), atMost: value.optional() })
    .refine(isSome, unlessEmpty('expected atLeast, atMost or both'))
    .refine(
      ({ atLeast = 0, atMost = most }) => atLeast <= atMost,
      unlessEmpty('can never hold: atLeast is more than atMost'),
    )
    .refine(
      ({ atLeast = 0, atMost = most }) => atLeast > 0 || atMost < most,
      unlessEmpty('asserts nothing: it can never fail'),
    )
    .describe(about)

const count = (about: string) => z.union([z.literal('none'), bound(z.int().min(0), about)]).describe(about)
const share = bound(z.number().min(0).max(1), 'Share of these calls that get a good answer, from 0 to 1.', 1)
const slowest = bound(duration({ min: 1 }), 'Time within which 95 of 100 of these calls end.')

const errorName = z.string().superRefine((name, context) => {
  if (errorNames.includes(name)) return
  const meant = suggest(name, errorNames)
  const hint = meant === undefined ? 'docs/errors.md lists them' : `did you mean "${meant}"?`
  context.addIssue({ code: 'custom', message: `there is no error "${name.slice(0, 64)}"; ${hint}` })
})

const counts = <Name extends string>(names: readonly Name[], about: string) =>
  some(
    Object.fromEntries(names.map((name) => [name, count(about).optional()])) as Record<
      Name,
      z.ZodOptional<ReturnType<typeof count>>
    >,
  )

const calls = z
  .strictObject({
    from: duration()
      .optional()
      .describe('Only calls that begin so long after the faults are armed, or later.'),
    to: duration().optional().describe('Only calls that begin before that (default: the end of the faults).'),
    succeed: share.optional(),
    p95: slowest.optional(),
  })
  .refine(({ succeed, p95 }) => isSome({ succeed, p95 }), unlessEmpty('expected succeed, p95 or both'))
  .refine(({ from = 0, to = Infinity }) => from < to, {
    ...unlessEmpty('there is no such phase: from has to be before to'),
    path: ['from'],
  })

const within = (about: string) => duration({ min: 1 }).optional().describe(about)

export const assertionsSchema = some({
  breaker: some({
    opens: z
      .union([
        z.literal('never'),
        some({
          withinCalls: z
            .int()
            .min(1)
            .optional()
            .describe('Every tool that gets so many calls is stopped by then.'),
          within: within('The first one opens so soon after the faults are armed.'),
          notBefore: within('None opens sooner than that.'),
        }),
      ])
      .optional(),
    closes: z
      .strictObject({ within: duration({ min: 1 }).describe('All are closed so long after the faults.') })
      .optional(),
  })
    .optional()
    .describe('Breakers of the servers that are hit.'),
  calls: z
    .union([calls, z.array(calls).min(1)])
    .optional()
    .describe("The run's own calls at servers that are hit, while faults last; a list for several phases."),
  others: some({ succeed: share.optional(), p95: slowest.optional() })
    .optional()
    .describe('The same at servers that are not hit.'),
  errors: some({
    must: z.array(errorName).min(1).optional().describe('Each of them is seen.'),
    may: z.array(errorName).min(1).optional().describe('No other is seen, but for those that must.'),
    never: z.array(errorName).min(1).optional().describe('None of them is seen.'),
  })
    .superRefine(({ must = [], never = [] }, context) => {
      for (const [at, name] of never.entries()) {
        const where = must.indexOf(name)
        if (where === -1) continue
        const message = `can never hold: "${name}" must be seen, by assert.errors.must[${where}]`
        context.addIssue({ code: 'custom', path: ['never', at], message })
      }
    })
    .optional()
    .describe('How calls at servers that are hit end, other than with a good answer.'),
  fates: counts(['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'], 'What became of faults.')
    .optional()
    .describe('How many of the injected faults had which fate.'),
  retries: count('Calls that were sent again.').optional(),
  attemptsPerCall: bound(z.number().min(0), 'Tries at the servers, by calls of agents.').optional(),
  rejections: counts(reasonNames, 'Calls that were kept from a server for this reason.').optional(),
  verdicts: counts(verdicts, 'Tries whose reply was judged so.').optional(),
  recovery: some({
    firstGood: within('A call gets a good answer so soon after the faults.'),
    steady: within('All calls that begin so long after the faults, or later, get good answers.'),
    p95: slowest.optional().describe('Of the calls that get good answers from then on.'),
  })
    .optional()
    .describe('How the servers that were hit come back, by calls that begin after the faults.'),
  claims: claims(measurable)
    .optional()
    .describe(
      'Claims about the faults, and about calls at servers that are hit while faults last: `p95 < 500ms`.',
    ),
  lists: z
    .literal('kept')
    .optional()
    .describe('/mcp lists every tool, while the faults last, that it listed before.'),
})

export type WrittenAssertions = z.output<typeof assertionsSchema>

export type WrittenBound = z.output<ReturnType<typeof count>>

export type WrittenCalls = z.output<typeof calls>

/** How long after the faults an assertion observes, in milliseconds; 0 without assertions on that time. */
export function aftermathOf({ breaker, recovery }: WrittenAssertions): Millis {
  const limits = [breaker?.closes?.within, recovery?.firstGood, recovery?.steady]
  const longest = Math.max(0, ...limits.map((limit) => limit ?? 0))
  return longest > 0 || recovery === undefined ? longest : LATER_MS
}

/** Default wait for a recovery, in milliseconds. */
const LATER_MS: Millis = 30_000

/** Whether any assertion concerns the gateway's counts. */
export function assertsCounts(written: WrittenAssertions): boolean {
  const { retries, attemptsPerCall, rejections, verdicts, claims: all = [] } = written
  const isClaimed = all.some(({ subject }) => subject === 'retries' || subject === 'attempts_per_call')
  return isClaimed || isSome({ retries, attemptsPerCall, rejections, verdicts })
}
