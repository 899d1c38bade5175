import { createHash } from 'node:crypto'
import { z } from 'zod'
import type { Block } from '../experiments/blocks.ts'
import { canonicalJson } from '../protocol/canonical-json.ts'
import { formatDuration, roundedDuration } from '../units/duration.ts'
import { firstOf, numbered } from '../units/numbered.ts'
import {
  type ComplianceMapping,
  evidenceFor,
  type RequirementEvidence,
  requirementEvidence,
} from './compliance.ts'
import { DAY_MS, dayOf, type Period } from './period.ts'
import { type DocumentKind, type Section, type Signed, signatureInWords } from './signed-document.ts'
import { runKinds, type RunSummary } from './summary.ts'
import { reasonTexts, verdicts } from './verdict-names.ts'

const text = z.string().max(10_000)
const ms = z.number().min(0).nullable()

/** A report on evidence, format 1. Moments and days are in UTC; both days of the period are included. */
export const evidenceReport = z.strictObject({
  format: z.literal(1),
  framework: text,
  title: text,
  source: text,
  asOf: text,
  checkedBy: text.nullable(),
  /** SHA-256 of the mapping, in hex. */
  mapping: text,
  period: z.strictObject({ name: text, firstDay: text, lastDay: text, judgedAt: text }),
  madeAt: text,
  /** Version of Breakwater. */
  version: text,
  /** Environments of the supporting runs in the period. */
  environments: z.array(text),
  statements: z.array(text),
  requirements: z.array(requirementEvidence),
  /** The runs that support a requirement in the period, the oldest first. */
  runs: z.array(
    z.strictObject({
      id: text,
      at: text,
      kind: z.enum(runKinds),
      name: text,
      environment: text,
      faults: z.array(text),
      verdict: z.enum(verdicts),
      measuredBy: z.enum(['gateway', 'client']),
      promisedMs: ms,
      measuredMs: ms,
      by: text,
      approver: text.nullable(),
    }),
  ),
})

export type EvidenceReport = z.output<typeof evidenceReport>

export interface Making {
  readonly period: Period
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly version: string
  /** Why the index of runs cannot be trusted; empty for a whole index. */
  readonly problems?: readonly string[]
}

/** Returns the report on the runs that may support the requirements of a mapping. */
export function reportOn(
  mapping: ComplianceMapping,
  summaries: readonly RunSummary[],
  { period, nowMs, version, problems = [] }: Making,
): EvidenceReport {
  const requirements = evidenceFor(mapping, summaries, period)
  const used = new Set(requirements.flatMap(({ runs }) => runs.map(({ id }) => id)))
  const supporting = summaries
    .filter(({ id, at }) => used.has(id) && at >= period.fromMs && at < period.judgedMs + 1)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1))
  const environments = [...new Set(supporting.map(({ environment }) => environment))].sort()
  const { framework, title, source, asOf, checkedBy } = mapping
  const judgedAt = new Date(period.judgedMs).toISOString()
  return {
    format: 1,
    framework,
    title,
    source,
    asOf,
    checkedBy,
    mapping: createHash('sha256').update(canonicalJson(mapping)!).digest('hex'),
    period: {
      name: period.name,
      firstDay: dayOf(period.fromMs),
      lastDay: dayOf(period.toMs - DAY_MS),
      judgedAt,
    },
    madeAt: new Date(nowMs).toISOString(),
    version,
    environments,
    statements: statementsOn(mapping, environments, {
      judgedAt,
      isOver: period.judgedMs === period.toMs - 1,
      problems,
      // A run before the period decides due dates, too.
      hasHandedIn: requirements.some(({ handedIn, last }) => handedIn > 0 || last?.measuredBy === 'client'),
    }),
    requirements: [...requirements],
    runs: supporting.map((run) => ({
      id: run.id,
      at: new Date(run.at).toISOString(),
      kind: run.kind,
      name: run.name,
      environment: run.environment,
      faults: [...new Set(run.faults.map(({ type }) => type))],
      verdict: run.verdict,
      measuredBy: run.measuredBy,
      promisedMs: run.rto.promisedMs,
      measuredMs: run.rto.measuredMs,
      by: run.by,
      approver: run.approver,
    })),
  }
}

function statementsOn(
  { source, asOf, checkedBy }: ComplianceMapping,
  environments: readonly string[],
  {
    judgedAt,
    isOver,
    problems,
    hasHandedIn,
  }: {
    readonly judgedAt: string
    readonly isOver: boolean
    readonly problems: readonly string[]
    readonly hasHandedIn: boolean
  },
): string[] {
  return [
    'This report lists evidence that may support the requirements below. Whether the evidence is enough, a person must judge.',
    checkedBy === null
      ? 'Nobody has checked the mapping from requirements to runs against the official text.'
      : `${checkedBy} has checked the mapping from requirements to runs against the official text.`,
    `The requirements are in our own words, as of ${asOf}. The official text is in force: ${source}.`,
    environments.length === 0
      ? 'No run of the period supports a requirement. Runs cover the path of calls through the gateway, and nothing else.'
      : `The runs cover the path of calls through the gateway, and nothing else, in the environments: ${firstOf(environments)}.`,
    'A test in staging is no test in production.',
    'A failed run is evidence of testing, too. A run with the verdict "no evidence" supports nothing.',
    `Due dates are days of UTC, judged at ${judgedAt}. Only stored runs are known.`,
    ...(hasHandedIn
      ? [
          'The gateway did not measure runs that a client handed in: their figures are claims by the holder of a token.',
        ]
      : []),
    ...(isOver ? [] : ['The period is not over yet.']),
    ...problems.map(
      (problem) => `The index of runs cannot be trusted, so runs may be missing or wrong: ${problem}.`,
    ),
  ]
}

/** Shown for unknown values. */
const NONE = '–'

const dayIn = (moment: string): string => moment.slice(0, 10)

const titleOf = ({ title, period }: EvidenceReport) => `Evidence that may support ${title}, ${period.name}`

function sectionsOf({ report, signature }: Signed<EvidenceReport>): readonly Section[] {
  const { period, statements, requirements, runs, madeAt, version, mapping } = report
  return [
    { title: 'About this report', blocks: [{ list: statements }] },
    { title: 'Summary', blocks: [summaryTable(requirements)] },
    ...requirements.map((one) => ({ title: one.ref, blocks: blocksOf(one) })),
    { title: 'Supporting runs', blocks: [runs.length === 0 ? 'None.' : runTable(runs)] },
    {
      title: 'Origin',
      blocks: [
        {
          list: [
            `period: ${period.firstDay} to ${period.lastDay}, both included`,
            `made at ${madeAt} by Breakwater ${version}`,
            `SHA-256 of the mapping: ${mapping}`,
            signatureInWords(signature),
          ],
        },
      ],
    },
  ]
}

const summaryTable = (requirements: readonly RequirementEvidence[]): Block => ({
  table: {
    head: [
      'requirement',
      'last test',
      'next test',
      'gap',
      'recovered in time',
      'runs',
      'passed',
      'held',
      'failed',
    ],
    rows: requirements.map((one) => {
      const {
        ref,
        runs,
        verdicts: { passed, held, failed },
        last,
        due,
        recovery,
        gap,
      } = one
      const note = gap ?? (isOnlyHandedIn(one) ? 'only handed in' : undefined)
      return [
        ref,
        last === null ? NONE : dayIn(last.at),
        dueCell(due),
        note === undefined ? NONE : { bold: note },
        recovery.promised === 0 ? NONE : `${recovery.met} of ${recovery.promised}`,
        runs.length,
        passed,
        held,
        failed,
      ]
    }),
    numbers: 5,
  },
})

function dueCell({ state, day }: RequirementEvidence['due']) {
  switch (state) {
    case 'no interval':
      return NONE
    case 'in time':
      return `by ${day}`
    case 'overdue':
      return { bold: `overdue since ${day}` }
    case 'never tested':
      return { bold: 'never tested' }
  }
}

/** Whether clients measured all supporting runs of the period. */
const isOnlyHandedIn = ({ runs, handedIn }: RequirementEvidence): boolean =>
  runs.length > 0 && handedIn === runs.length

function blocksOf(one: RequirementEvidence): readonly Block[] {
  const { id, text, everyMs, runs, handedIn, others, last, recovery, limits } = one
  const { promised, met, notMeasured } = recovery
  return [
    text,
    {
      list: [
        `id: ${id}`,
        everyMs === null
          ? 'interval: the mapping gives none'
          : `interval: ${formatDuration(everyMs)}; ${dueInWords(one.due)}`,
        runs.length === 0
          ? `gap: ${one.gap} in the period`
          : `${numbered(runs.length, 'supporting run')} in the period: ${firstOf(runs.map(({ id }) => id))}`,
        ...(handedIn === 0
          ? []
          : [
              isOnlyHandedIn(one)
                ? 'clients handed in all supporting runs of the period: the gateway measured none of these'
                : `handed in by clients, and not measured by the gateway: ${handedIn} of ${numbered(runs.length, 'run')}`,
            ]),
        ...(others.length === 0 ? [] : [`not supporting: ${firstOf(others.map(otherRun))}`]),
        last === null
          ? 'no stored run supports this requirement'
          : `last supporting run: ${last.id} of ${dayIn(last.at)}${last.measuredBy === 'client' ? ', handed in by a client' : ''}`,
        promised === 0
          ? 'no supporting run of the period promised a recovery time'
          : `recovered in the promised time: ${met} of ${numbered(promised, 'run')}${notMeasured === 0 ? '' : `; not measured: ${notMeasured}`}`,
        ...limits.map((limit) => `limit: ${limit}`),
      ],
    },
  ]
}

function dueInWords({ state, day }: RequirementEvidence['due']): string {
  switch (state) {
    case 'no interval':
      return 'no due date'
    case 'in time':
      return `the next test is due by ${day}`
    case 'overdue':
      return `overdue since ${day}`
    case 'never tested':
      return 'overdue: no stored run supports this requirement'
  }
}

const otherRun = ({ id, name, why, reasons }: RequirementEvidence['others'][number]) =>
  `${name} ${id} (${why}${reasons.length === 0 ? '' : `: ${reasons.map((reason) => reasonTexts[reason]).join('; ')}`})`

const runTable = (runs: EvidenceReport['runs']): Block => ({
  table: {
    head: [
      'run',
      'day',
      'kind',
      'name',
      'environment',
      'faults',
      'verdict',
      'measured by',
      'by',
      'approved by',
      'promised',
      'recovered',
    ],
    rows: runs.map((run) => [
      run.id,
      dayIn(run.at),
      run.kind,
      run.name,
      run.environment,
      firstOf(run.faults),
      run.verdict,
      run.measuredBy,
      run.by,
      run.approver ?? NONE,
      run.promisedMs === null ? NONE : roundedDuration(run.promisedMs),
      run.measuredMs === null ? NONE : roundedDuration(run.measuredMs),
    ]),
    numbers: 10,
  },
})

/** The report as a document that a person may sign. */
export const evidenceDocument: DocumentKind<EvidenceReport> = {
  kind: 'evidence',
  schema: evidenceReport,
  titleOf,
  sectionsOf,
}
