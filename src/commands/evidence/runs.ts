import type { Env } from '../../config/files/interpolate.ts'
import { FEWEST_RUNS } from '../../evidence/change.ts'
import { GRADED_RUNS } from '../../evidence/grade.ts'
import { readKey } from '../../chaos/journal/head.ts'
import { journalFolder, keptRecords } from '../../evidence/journal.ts'
import {
  coverageIn,
  dueIn,
  estimatesIn,
  gradesIn,
  questionFields,
  recoveryIn,
} from '../../evidence/questions.ts'
import { type RunField, runFields } from '../../evidence/stored-run.ts'
import { runKinds, type RunSummary } from '../../evidence/summary.ts'
import {
  regressions,
  type Trend,
  trendFields,
  trendMetrics,
  type TrendOptions,
  trendOf,
} from '../../evidence/trend.ts'
import { verdicts } from '../../evidence/verdict-names.ts'
import { systemClock } from '../../mesh/clock.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { keyOption } from '../agents/signer.ts'
import {
  listed,
  Misuse,
  optionLines,
  type Options,
  optionsOf,
  type Output,
  runCommand,
  unknownCommand,
  UnusableInput,
} from '../shared/arguments.ts'
import type { Cell } from '../shared/table.ts'
import { anchor, verify } from './anchors.ts'
import { answer, type Asked, dateOf, numberOf, oneEach, percent, rows, timeOf } from './asked.ts'
import { addRuns } from './add-runs.ts'
import { exportRuns } from './export.ts'
import { linesOf } from './shown-run.ts'
import { verdictTones } from './verdict-tones.ts'
import { prune, pruneOptions } from './prune.ts'
import {
  periodIn,
  periodOptions,
  stateFolder,
  type StoredIndex,
  storedRuns,
  storedRunsOptions,
} from './stored-runs.ts'

const common = { ...storedRunsOptions, json: { kind: 'flag', about: 'the answer as JSON' } } as const

const selectors = {
  kind: {
    kind: 'choice',
    of: runKinds,
    value: 'KIND',
    about: `only runs of this kind: ${runKinds.join(', ')}`,
  },
  plan: { kind: 'text', value: 'NAME', about: 'only runs of this plan' },
  server: { kind: 'text', value: 'NAME', about: 'only runs at this server' },
} as const

const filters = {
  ...selectors,
  ...periodOptions,
  last: {
    kind: 'integer',
    min: 1,
    max: 1_000_000,
    value: 'N',
    about: `only the last N runs (default: all); for grades, the last N runs of each plan (default: ${GRADED_RUNS})`,
  },
} as const

const acrossOption = {
  across: {
    kind: 'choice',
    of: ['policies'],
    value: 'FIELD',
    about: '`policies`: also compares runs with different policies, and says so',
  },
} as const

const verdictOption = {
  verdict: { kind: 'choice', of: verdicts, value: 'VERDICT', about: `one of: ${verdicts.join(', ')}` },
} as const

const verifyOptions = {
  anchors: {
    kind: 'text',
    value: 'FILE',
    about: 'copies of anchors, a line each, that were kept outside of the state folder',
  },
  trust: {
    kind: 'list',
    value: 'NAME=PUBLICKEY',
    about: 'a trusted person with the public key (default: gateway.controlMcp.trust of the config)',
  },
} as const

/** `list --json` leaves out the courses of runs, which are most of the index; `show` and `export` have them. */
const courses: readonly RunField[] = ['windows', 'transitions', 'recoveries']
const inJson = runFields.filter((field) => !courses.includes(field))

interface Question {
  readonly positionals?: readonly string[]
  readonly options?: Options
  run(asked: Asked): Promise<number>
}

const questions: Readonly<Record<string, Question>> = {
  list: {
    options: { ...filters, ...verdictOption },
    async run(asked) {
      const { verdict: wanted, last } = asked.values
      const isJson = asked.values.json === true
      const shown = ['id', 'measuredBy', 'targets', 'faults', 'reasons', ...questionFields.grades] as const
      const { runs: graded } = await chosen(asked, isJson ? inJson : shown)
      const grades = gradesIn(graded, typeof last === 'number' ? last : GRADED_RUNS)
      const runs = lastOf(
        graded.filter(({ verdict }) => wanted === undefined || verdict === wanted),
        asked,
      )
      const files = isJson ? await recordFiles(asked) : undefined
      const data = () => ({
        runs: runs.map((run) => ({ ...run, record: files?.get(run.id) ?? null })),
        grades,
      })
      return answer(asked, isJson ? data() : undefined, () => [
        ...rows(
          asked,
          ['RUN', 'KIND', 'PLAN', 'BEGAN (UTC)', 'SERVERS', 'FAULTS', 'VERDICT', 'MEASURED BY', 'REASONS'],
          runs.map(({ id, kind, name, at, targets, faults, verdict, measuredBy, reasons }) => [
            id,
            kind,
            name,
            dateOf(at),
            oneEach(targets.map(({ server }) => server)),
            oneEach(faults.map(({ type }) => type)),
            { text: verdict, tone: verdictTones[verdict] },
            measuredBy,
            reasons.join(', '),
          ]),
        ),
        '',
        ...rows(
          asked,
          ['KIND', 'PLAN', 'GRADE', 'PASSED', 'HELD (WEAK)', 'FAILED', 'NO EVIDENCE', 'REASONS'],
          grades.map(({ kind, plan, grade, passed, weak, failed, noEvidence, reasons }) => [
            kind,
            plan,
            grade,
            passed,
            weak,
            failed,
            noEvidence,
            reasons.join('; '),
          ]),
        ),
      ])
    },
  },
  show: {
    positionals: ['ID'],
    async run(asked) {
      const [id = ''] = asked.positionals
      const only = (one: Pick<RunSummary, 'id' | 'name'>) => one.id === id || one.name === id
      const { runs: all } = await storedRuns(asked.values, asked, { arms: [], only })
      // A plan may have the id of another run as its name.
      const run = all.find((one) => one.id === id) ?? all.findLast(({ name }) => name === id)
      if (run === undefined)
        throw new UnusableInput(`the index has no run or plan "${id}"; \`breakwater runs list\` lists them`)
      const found = { ...run, record: (await recordFiles(asked)).get(run.id) ?? null }
      return answer(asked, found, () => linesOf(found, asked))
    },
  },
  coverage: {
    options: filters,
    run: (asked) =>
      tableOf(
        asked,
        questionFields.coverage,
        coverageIn,
        ['SERVER', 'FAULT', 'RUNS', 'OF THESE EVIDENCE', 'LAST EVIDENCE (UTC)'],
        (one) => [
          one.server,
          one.fault,
          one.runs,
          one.evidence,
          one.lastEvidenceAt === undefined ? 'never' : dateOf(one.lastEvidenceAt),
        ],
      ),
  },
  recovery: {
    options: filters,
    run: (asked) =>
      tableOf(
        asked,
        questionFields.recovery,
        recoveryIn,
        ['KIND', 'PLAN', 'EVIDENCE', 'MEDIAN', 'WORST', 'NOT RECOVERED', 'PROMISED', 'KEPT'],
        (one) => [
          one.kind,
          one.plan,
          one.runs,
          timeOf(one.median),
          timeOf(one.worst),
          one.notRecovered,
          timeOf(one.promised),
          one.promises === 0 ? '–' : `${one.kept} of ${one.promises}`,
        ],
      ),
  },
  trend: {
    options: { ...filters, ...acrossOption },
    async run(asked) {
      if (asked.values.plan === undefined) throw new Misuse('--plan NAME is missing')
      const { runs: own } = await filtered(asked, trendFields, ['treatment'])
      if (own.length === 0) throw new UnusableInput(`the index has no run of ${String(asked.values.plan)}`)
      const trends = trendMetrics.map((metric) => trendOf(own, metric, acrossIn(asked)))
      return answer(asked, trends, () => rows(asked, TREND_HEAD, trends.map(trendCells)))
    },
  },
  regressions: {
    options: { ...filters, ...acrossOption },
    async run(asked) {
      const { runs, problems } = await filtered(asked, trendFields, ['treatment'])
      const found = regressions(runs, acrossIn(asked))
      await answer(asked, found, () =>
        rows(
          asked,
          ['PLAN', ...TREND_HEAD, 'ADJUSTED P'],
          found.map(({ name, trend, adjustedP }) => [
            name,
            ...trendCells(trend),
            adjustedP === undefined ? '–' : numberOf(adjustedP),
          ]),
        ),
      )
      const isWorse = found.some(({ trend, holds }) => holds && trend.answer === 'degrading')
      return isWorse || problems.length > 0 ? 1 : 0
    },
  },
  estimates: {
    options: filters,
    run: (asked) =>
      tableOf(
        asked,
        questionFields.estimates,
        estimatesIn,
        ['KIND', 'PLAN', 'ESTIMATE', 'RIGHT', 'OF', '95 % INTERVAL'],
        (one) => [
          one.kind,
          one.plan,
          one.of,
          one.right,
          one.estimates,
          `${percent(one.low)} to ${percent(one.high)}`,
        ],
      ),
  },
  due: {
    options: selectors,
    async run(asked) {
      const { runs, problems } = await chosen(asked, questionFields.due)
      const due = dueIn(runs, systemClock.wall())
      await answer(asked, due, () =>
        rows(
          asked,
          ['KIND', 'PLAN', 'EVERY', 'LAST EVIDENCE (UTC)', 'DUE (UTC)', ''],
          due.map(({ kind, plan, everyMs, lastAt, dueAt, isOverdue }) => [
            kind,
            plan,
            formatDuration(everyMs),
            lastAt === undefined ? 'never' : dateOf(lastAt),
            dateOf(dueAt),
            isOverdue ? { text: 'overdue', tone: 'bad' } : '',
          ]),
          'no run of a plan with `every`, so nothing is due',
        ),
      )
      return due.some(({ isOverdue }) => isOverdue) || problems.length > 0 ? 1 : 0
    },
  },
  prune: { options: pruneOptions, run: prune },
  anchor: { options: keyOption, run: anchor },
  verify: { options: verifyOptions, run: verify },
}

const usage = `breakwater runs QUESTION [--state DIR | --config FILE]

  Answers from the index of runs: a summary of each ended run, kept after the run's record is removed. Needs no
  running gateway. In the index, a plan is the name of an experiment file.

  list        verdict of each run, and grade of each plan; the JSON lacks windows, transitions and recoveries
  show ID     a run by its id, or the last run of a plan by the plan's name: verdict with reasons, claims, calls, faults
  coverage    runs of each server with each type of fault, and the last run that is evidence
  recovery    measured and promised recovery times of each plan
  trend       change of a plan's recovery time, p95 and error ratio over comparable runs, however often one looks
  regressions the trends of all plans, adjusted for their number; exit code 1 when one is degrading
  estimates   how often the estimates in the experiment files were right
  due         plans with \`every\`, and the day of the next run; exit code 1 when one is overdue
  export      writes the index as tables; see \`breakwater runs export --help\`
  add FILE    adds runs that a client measured: scenarios, paired comparisons, soaks
  prune       removes records of old runs, and no summary; refused while a gateway uses the state folder
  anchor      signs the end of the index with your key: from then on nobody can change earlier lines unnoticed
  verify      checks each line of the index, and each anchor; exit code 1 for a problem

${optionLines([...listed(common), ...optionsOf(questions)])}

  Exit codes: 0; 1 as above, for \`due\` and \`regressions\` over a damaged index, and when the index cannot be read;
  2 for wrong arguments.`

/** `breakwater runs`: questions about the index of runs. */
export function runs([name = '', ...rest]: readonly string[], out: Output, env: Env): Promise<number> {
  if (name === 'export') return exportRuns(rest, out, env)
  if (name === 'add') return addRuns(rest, out, env)
  const question = Object.hasOwn(questions, name) ? questions[name] : undefined
  const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : question === undefined ? [] : rest
  const { options, positionals = [] } = question ?? {}
  return runCommand(own, { usage, options: { ...common, ...options }, positionals }, out, (values, given) => {
    if (question === undefined)
      throw new Misuse(unknownCommand(name, [...Object.keys(questions), 'add', 'export']))
    return question.run({ values, positionals: given, out, env })
  })
}

const acrossIn = ({ values }: Asked): TrendOptions =>
  values.across === 'policies' ? { across: 'policies' } : {}

const TREND_HEAD = ['METRIC', 'TREND', 'RUNS', 'BEFORE', 'AFTER', 'SINCE', 'NOTE']

function trendCells(trend: Trend): readonly Cell[] {
  const { metric, answer, n, across } = trend
  const shown = (value: number | undefined) =>
    value === undefined ? '–' : metric === 'error_ratio' ? percent(value) : roundedDuration(value)
  const tone = answer === 'degrading' ? 'bad' : answer === 'improving' ? 'good' : 'doubtful'
  const first = [metric, { text: answer, tone } as const, n]
  const mixed = across === undefined ? '' : `across ${across}`
  if (!('split' in trend))
    return [
      ...first,
      '–',
      '–',
      '–',
      'differ' in trend
        ? `the runs differ in ${trend.differ.join(', ')}`
        : [`a trend needs ${FEWEST_RUNS} runs`, mixed].filter(Boolean).join('; '),
    ]
  const { split } = trend
  if (answer === 'no change found') {
    const factor = trend.wouldHaveSeen?.factor
    const note = factor === undefined ? '' : `would have seen × ${factor.toFixed(2)}`
    return [...first, '–', '–', '–', [note, mixed].filter(Boolean).join('; ')]
  }
  const notes =
    'shape' in trend ? [trend.shape, trend.promise === undefined ? '' : `promise ${trend.promise}`] : []
  const note = [...notes, mixed].filter(Boolean).join('; ')
  return [...first, shown(split.before), shown(split.after), split.run, note]
}

/**
 * Returns the index with these fields of the runs of the chosen plan, server and period. `arms`: the arms whose durations
 * are read; default: none.
 */
async function chosen<Field extends RunField>(
  asked: Asked,
  fields: readonly Field[],
  arms: readonly string[] = [],
): Promise<StoredIndex<Field>> {
  const { kind: onlyKind, plan, server } = asked.values
  const text = (value: unknown) => (typeof value === 'string' ? value : undefined)
  const quarter = text(asked.values.quarter)
  const period = periodIn({ quarter, period: text(asked.values.period) }, systemClock.wall())
  const index = await storedRuns<Field | 'kind' | 'targets' | 'at'>(asked.values, asked, {
    fields: [...fields, 'kind', 'targets', 'at'],
    arms,
    only: ({ name }) => plan === undefined || name === plan,
  })
  // Clients may hand in a run long after the run.
  const runs = [...index.runs]
    .sort((a, b) => a.at - b.at)
    .filter(
      ({ kind, targets, at }) =>
        (onlyKind === undefined || kind === onlyKind) &&
        (server === undefined || targets.some((one) => one.server === server)) &&
        (period === undefined || (at >= period.fromMs && at < period.toMs)),
    )
  return { ...index, runs }
}

const lastOf = <Run>(found: readonly Run[], { values: { last } }: Asked): readonly Run[] =>
  typeof last === 'number' ? found.slice(-last) : found

async function filtered<Field extends RunField>(
  asked: Asked,
  fields: readonly Field[],
  arms?: readonly string[],
): Promise<StoredIndex<Field>> {
  const index = await chosen(asked, fields, arms)
  return { ...index, runs: lastOf(index.runs, asked) }
}

/** Returns the files of the records in the journal, by the id of the run. */
async function recordFiles({ values, env }: Asked): Promise<ReadonlyMap<string, string>> {
  const stateDir = await stateFolder(values, env)
  const key = await readKey(stateDir)
  const kept = key === undefined ? [] : await keptRecords(journalFolder(stateDir), key)
  return new Map(kept.map(({ id, file }) => [id, file]))
}

async function tableOf<Field extends RunField, Row>(
  asked: Asked,
  fields: readonly Field[],
  ask: (runs: readonly Pick<RunSummary, Field>[]) => readonly Row[],
  head: readonly string[],
  cells: (row: Row) => readonly Cell[],
): Promise<number> {
  const { runs } = await filtered(asked, fields)
  const found = ask(runs)
  return answer(asked, found, () => rows(asked, head, found.map(cells)))
}
