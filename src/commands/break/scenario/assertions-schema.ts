import { z } from 'zod'
import { claims } from '../../../claims/claim.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { reasons, stableCode } from '../../../mesh/errors.ts'
import { verdicts } from '../../../mesh/outcome.ts'
import { policies } from '../../../policies/index.ts'
import { duration } from '../../../units/duration.ts'
import { suggest } from '../../../units/suggest.ts'
import { measurable } from './measures.ts'

/** Names of all reasons for which the mesh and its policies end a call. */
const reasonNames = [
  ...Object.keys(reasons),
  ...Object.values(policies).flatMap((policy) =>
    'reasons' in policy ? (policy.reasons ?? []).map(({ name }) => name) : [],
  ),
]

/** All errors that a scenario may name: the endings of calls that are not a good answer. */
const errorNames = [...reasonNames.map(stableCode), 'tool error', 'rpc error']

/**
 * Returns zod options for a check on a whole map. The check runs only if the map has no other issue, so a mistyped key
 * is reported alone.
 */
const unlessEmpty = (error: string) => ({
  error,
  when: ({ issues }: { readonly issues: readonly unknown[] }) => issues.length === 0,
})

const isSome = (value: object): boolean => Object.values(value).some((one) => one !== undefined)

const some = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape).refine(isSome, unlessEmpty('asserts nothing: it is empty'))

/** Returns the schema of a bound on a number, whose possible values are 0 to `most`. */
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
      .describe('Only calls begun at this time after the arming of the faults, or later.'),
    to: duration().optional().describe('Only calls begun before this time (default: the end of the faults).'),
    succeed: share.optional(),
    p95: slowest.optional(),
  })
  .refine(({ succeed, p95 }) => isSome({ succeed, p95 }), unlessEmpty('expected succeed, p95 or both'))
  .refine(({ from = 0, to = Infinity }) => from < to, {
    ...unlessEmpty('the phase is empty: from must be before to'),
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
            .describe('Every tool is stopped after at most this number of calls.'),
          within: within('The first breaker opens within this time after the arming of the faults.'),
          notBefore: within('No breaker opens earlier.'),
        }),
      ])
      .optional(),
    closes: z
      .strictObject({ within: duration({ min: 1 }).describe('All breakers close within this time.') })
      .optional(),
  })
    .optional()
    .describe('Breakers of the hit servers.'),
  calls: z
    .union([calls, z.array(calls).min(1)])
    .optional()
    .describe("The run's own calls at hit servers, while faults last; a list for several phases."),
  others: some({ succeed: share.optional(), p95: slowest.optional() })
    .optional()
    .describe("The run's own calls at other servers."),
  errors: some({
    must: z.array(errorName).min(1).optional().describe('Agents see each of these errors.'),
    may: z.array(errorName).min(1).optional().describe('Besides must, agents see only these errors.'),
    never: z.array(errorName).min(1).optional().describe('Agents see none of these errors.'),
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
    .describe('Errors of calls at hit servers.'),
  fates: counts(['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'], 'Fates of faults.')
    .optional()
    .describe('Injected faults by fate.'),
  retries: count('Retries.').optional(),
  attemptsPerCall: bound(z.number().min(0), 'Attempts at the servers per call of an agent.').optional(),
  rejections: counts(reasonNames, 'Calls rejected for this reason.').optional(),
  verdicts: counts(verdicts, 'Attempts with this verdict on their reply.').optional(),
  recovery: some({
    firstGood: within('A call gets a good answer within this time after the faults.'),
    steady: within('All calls begun at this time after the faults, or later, get good answers.'),
    p95: slowest.optional().describe('For the calls of the steady state.'),
  })
    .optional()
    .describe('Recovery of the hit servers, by the calls begun after the faults.'),
  claims: claims(measurable)
    .optional()
    .describe('Claims about the faults, and about calls at hit servers while faults last: `p95 < 500ms`.'),
  lists: z.literal('kept').optional().describe('During the faults, /mcp lists every tool listed before.'),
})

export type WrittenAssertions = z.output<typeof assertionsSchema>

export type WrittenBound = z.output<ReturnType<typeof count>>

export type WrittenCalls = z.output<typeof calls>

/** Returns how long a run observes after the end of the faults, in milliseconds; 0 without assertions on this time. */
export function aftermathOf({ breaker, recovery }: WrittenAssertions): Millis {
  const limits = [breaker?.closes?.within, recovery?.firstGood, recovery?.steady]
  const longest = Math.max(0, ...limits.map((limit) => limit ?? 0))
  return longest > 0 || recovery === undefined ? longest : LATER_MS
}

/** Default wait for a recovery, in milliseconds. */
const LATER_MS: Millis = 30_000

/** Returns true if any assertion needs the gateway's counts. */
export function assertsCounts(written: WrittenAssertions): boolean {
  const { retries, attemptsPerCall, rejections, verdicts, claims: all = [] } = written
  const isClaimed = all.some(({ subject }) => subject === 'retries' || subject === 'attempts_per_call')
  return isClaimed || isSome({ retries, attemptsPerCall, rejections, verdicts })
}
