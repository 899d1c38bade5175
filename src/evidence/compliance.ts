import { z } from 'zod'
import { glob } from '../mesh/match.ts'
import { duration } from '../units/duration.ts'
import { globPattern } from '../units/glob-schema.ts'
import { DAY_MS, dayOf, type Period } from './period.ts'
import { runKinds, type RunSummary } from './summary.ts'
import { reasonNames, type Verdict } from './verdict-names.ts'

/** Short names of the verdicts that can support a requirement. A run without evidence supports nothing. */
const supportingVerdicts = ['passed', 'held', 'failed'] as const
type SupportingVerdict = (typeof supportingVerdicts)[number]

const shortNames: Readonly<Record<Verdict, SupportingVerdict | undefined>> = {
  passed: 'passed',
  'held (weak)': 'held',
  failed: 'failed',
  'no evidence': undefined,
}

/** Longest interval of a requirement, in days. */
const MOST_DAYS = 3_660

/** Texts that claim a result of an audit. Only an auditor can state such a result. */
const CLAIM = /compliant|compliance achieved|certified/i

/** Tests by attackers, which injected faults never replace. */
const ATTACK_TEST = /penetration[ -]?test|pen[ -]?test|red[ -]team|\bTLPT\b/i

const words = (longest: number) =>
  z
    .string()
    .min(1)
    .max(longest)
    .refine(
      (text) => !CLAIM.test(text),
      'a mapping must not claim compliance: a run only may support a requirement',
    )

/** The text of a requirement. */
const demand = (longest: number) =>
  words(longest).refine(
    (text) => !ATTACK_TEST.test(text),
    'injected faults support no requirement of tests by attackers',
  )

const id = words(64).regex(/^[a-z0-9][a-z0-9-]{0,63}$/, {
  error: 'expected an id: 1 to 64 of a-z 0-9 -, without - in front',
})

const requirement = z.strictObject({
  id,
  ref: demand(100).describe('Number of the article, clause or control in the official text.'),
  text: demand(500).describe('The requirement in your own words.'),
  every: duration({ min: DAY_MS, max: MOST_DAYS * DAY_MS })
    .nullable()
    .describe('Longest time between two tests. `null` if the official text gives no interval.'),
  supports: z.strictObject({
    kinds: z.array(z.enum(runKinds)).min(1).max(runKinds.length).describe('Kinds of runs.'),
    faults: z
      .array(globPattern)
      .min(1)
      .max(100)
      .describe('Types of faults, as globs. At least one fault of such a type must have taken effect.'),
    verdict: z.array(z.enum(supportingVerdicts)).min(1).max(supportingVerdicts.length),
  }),
  limits: z.array(words(500)).min(1).max(20).describe('Shortcomings of such runs as evidence.'),
})

export type Requirement = z.output<typeof requirement>

/** A mapping of the requirements of a framework to kinds of runs. `every` reads to milliseconds. */
export const complianceMapping = z.strictObject({
  framework: id,
  title: words(200),
  source: words(500).describe('URL or citation of the official text.'),
  asOf: z.iso
    .date('expected a date such as 2026-11-30')
    .describe('Day on which somebody read the official text.'),
  checkedBy: words(100)
    .nullable()
    .describe('Name of the person who compared the mapping with the official text; `null` if nobody did.'),
  requirements: z
    .array(requirement)
    .min(1)
    .max(200)
    .superRefine((all, context) => {
      const seen = new Set<string>()
      for (const [at, { id }] of all.entries()) {
        if (seen.has(id))
          context.addIssue({ code: 'custom', path: [at, 'id'], message: `"${id}" is used twice` })
        seen.add(id)
      }
    }),
})

export type ComplianceMapping = z.output<typeof complianceMapping>

const runId = z.string().max(64)
const moment = z.iso.datetime()
const measuredBy = z.enum(['gateway', 'client'])
const count = z.int().min(0)

/** Evidence that may support a requirement. Moments are in UTC. */
export const requirementEvidence = z.strictObject({
  id,
  ref: words(100),
  text: words(500),
  /** Longest time between two tests, in milliseconds; null without an interval. */
  everyMs: z.number().min(0).nullable(),
  /** Supporting runs in the period, the oldest first. */
  runs: z.array(z.strictObject({ id: runId, at: moment, verdict: z.enum(supportingVerdicts) })),
  verdicts: z.strictObject({ passed: count, held: count, failed: count }),
  /** How many of `runs` a client measured and handed in; the gateway measured the others. */
  handedIn: count,
  /** Runs in the period with the kind and a fault of the requirement that do not support the requirement. */
  others: z.array(
    z.strictObject({
      id: runId,
      name: z.string().max(200),
      at: moment,
      /** Why the run proves nothing; empty for a run that proves something. */
      reasons: z.array(z.enum(reasonNames)),
      why: z.enum(['no evidence', 'no effect of a named fault', 'other verdict']),
    }),
  ),
  /** The last supporting run up to the end of the period, also before the period; null without such a run. */
  last: z.strictObject({ id: runId, at: moment, measuredBy }).nullable(),
  due: z.strictObject({
    state: z.enum(['no interval', 'in time', 'overdue', 'never tested']),
    /** In time: the last day for the next test. Overdue: the first day without a test in time. Null otherwise. */
    day: z.iso.date().nullable(),
  }),
  /** Supporting runs in the period with a promised recovery time, of which `met` recovered in time. */
  recovery: z.strictObject({ promised: count, met: count, notMeasured: count }),
  /** Why the period has no supporting run; null if there is a supporting run. */
  gap: z.enum(['no run', 'only runs without evidence', 'no supporting run']).nullable(),
  limits: z.array(words(500)),
})

export type RequirementEvidence = z.output<typeof requirementEvidence>

const isoOf = (ms: number): string => new Date(ms).toISOString()

/**
 * Returns, for each requirement, the runs of a period that may support the requirement. A failed run is evidence of
 * testing, too. A run belongs to the period in which the run began. A run that began after the judgement is no test yet:
 * the clock of its gateway was wrong.
 */
export function evidenceFor(
  mapping: ComplianceMapping,
  summaries: readonly RunSummary[],
  period: Period,
): readonly RequirementEvidence[] {
  const runs = summaries
    .filter(({ at }) => at < period.judgedMs + 1)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1))
  return mapping.requirements.map((one) => evidenceOf(one, runs, period))
}

type Support = SupportingVerdict | RequirementEvidence['others'][number]['why']

const isSupporting = (support: Support): support is SupportingVerdict =>
  (supportingVerdicts as readonly string[]).includes(support)

function evidenceOf(
  { id, ref, text, every, supports, limits }: Requirement,
  runs: readonly RunSummary[],
  { fromMs, judgedMs }: Period,
): RequirementEvidence {
  const supportOf = supportFor(supports)
  const matching = runs.flatMap((run) => {
    const support = supportOf(run)
    return support === undefined ? [] : [{ run, support }]
  })
  const within = matching.filter(({ run }) => run.at >= fromMs)
  const supporting = within.flatMap(({ run, support }) => (isSupporting(support) ? [{ run, support }] : []))
  const others = within.flatMap(({ run: { id, name, at, reasons }, support }) =>
    isSupporting(support) ? [] : [{ id, name, at: isoOf(at), reasons, why: support }],
  )
  const last = matching.findLast(({ support }) => isSupporting(support))?.run
  const withVerdict = (verdict: SupportingVerdict) =>
    supporting.filter(({ support }) => support === verdict).length
  return {
    id,
    ref,
    text,
    everyMs: every,
    runs: supporting.map(({ run: { id, at }, support }) => ({ id, at: isoOf(at), verdict: support })),
    verdicts: { passed: withVerdict('passed'), held: withVerdict('held'), failed: withVerdict('failed') },
    handedIn: supporting.filter(({ run }) => run.measuredBy === 'client').length,
    others,
    last: last === undefined ? null : { id: last.id, at: isoOf(last.at), measuredBy: last.measuredBy },
    due: dueOf(every, last, judgedMs),
    recovery: recoveryOf(supporting.map(({ run }) => run)),
    gap: gapOf(supporting.length, others),
    limits,
  }
}

/** Returns a function that tells how a run supports a requirement; undefined for a run of another kind or fault. */
function supportFor({ kinds, faults, verdict: accepted }: Requirement['supports']) {
  const globs = faults.map(glob)
  return ({ kind, faults, verdict }: RunSummary): Support | undefined => {
    if (!kinds.includes(kind)) return undefined
    const named = faults.filter(({ type }) => globs.some((matches) => matches(type)))
    if (named.length === 0) return undefined
    const short = shortNames[verdict]
    if (short === undefined) return 'no evidence'
    if (named.every(({ applied }) => applied === 0)) return 'no effect of a named fault'
    return accepted.includes(short) ? short : 'other verdict'
  }
}

/** Due dates are whole days of UTC: a requirement is overdue from the day after its last day. */
function dueOf(
  every: number | null,
  last: RunSummary | undefined,
  judgedMs: number,
): RequirementEvidence['due'] {
  if (every === null) return { state: 'no interval', day: null }
  if (last === undefined) return { state: 'never tested', day: null }
  const overdueMs = Math.floor((last.at + every) / DAY_MS) * DAY_MS + DAY_MS
  return judgedMs < overdueMs
    ? { state: 'in time', day: dayOf(overdueMs - DAY_MS) }
    : { state: 'overdue', day: dayOf(overdueMs) }
}

function recoveryOf(runs: readonly RunSummary[]): RequirementEvidence['recovery'] {
  const promised = runs.flatMap(({ rto: { promisedMs, measuredMs } }) =>
    promisedMs === null ? [] : [{ promisedMs, measuredMs }],
  )
  return {
    promised: promised.length,
    met: promised.filter(({ promisedMs, measuredMs }) => measuredMs !== null && measuredMs <= promisedMs)
      .length,
    notMeasured: promised.filter(({ measuredMs }) => measuredMs === null).length,
  }
}

function gapOf(supporting: number, others: RequirementEvidence['others']): RequirementEvidence['gap'] {
  if (supporting > 0) return null
  if (others.length === 0) return 'no run'
  return others.every(({ why }) => why === 'no evidence') ? 'only runs without evidence' : 'no supporting run'
}
