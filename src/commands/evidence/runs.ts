import { appendFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Env } from '../../config/files/interpolate.ts'
import { loadConfig } from '../../config/load.ts'
import { readPublicKey } from '../../approval/keys.ts'
import { anchorOf, signedAnchorSchema, unprovenBy } from '../../evidence/anchor.ts'
import { coverageIn, dueIn, estimatesIn, gradesIn, recoveryIn } from '../../evidence/questions.ts'
import type { RunSummary } from '../../evidence/summary.ts'
import { regressions, type Trend, trendMetrics, type TrendOptions, trendOf } from '../../evidence/trend.ts'
import { type Verdict, verdicts } from '../../evidence/verdict-names.ts'
import { systemClock } from '../../mesh/clock.ts'
import type { Tone } from '../../telemetry/colours.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'
import { keyOption, signerOf } from '../agents/signer.ts'
import {
  Misuse,
  optionLines,
  type Options,
  type Output,
  runCommand,
  unknownCommand,
  UnusableInput,
} from '../shared/arguments.ts'
import { paintOf, type Values } from '../shared/control-command.ts'
import { type Cell, table } from '../shared/table.ts'
import { exportRuns } from './export.ts'
import { storedIndex, storedRuns, storedRunsOptions } from './stored-runs.ts'

const common = { ...storedRunsOptions, json: { kind: 'flag', about: 'the answer as JSON' } } as const

const filters = {
  plan: { kind: 'text', value: 'NAME', about: 'only runs of this plan' },
  server: { kind: 'text', value: 'NAME', about: 'only runs at this server' },
  last: {
    kind: 'integer',
    min: 1,
    max: 1_000_000,
    value: 'N',
    about: 'only the last N runs, or for grades the last N of each plan (default: 20)',
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

const trustOption = {
  trust: {
    kind: 'list',
    value: 'NAME=KEY',
    about: 'a trusted public key (default: gateway.controlMcp.trust of --config)',
  },
} as const

const usage = `breakwater runs NAME [--state DIR | --config FILE]

  The index of runs: a summary of each ended run, kept after the run's record is removed. Needs no running gateway.

  list        verdicts and grades of the runs
  show ID     a run: verdict with its proof, claims with intervals, fates of the faults
  coverage    tests of each server with each type of fault
  recovery    recovery times, and the promised times
  trend       change of a plan's recovery time, p95 and error ratio over comparable runs, however often one looks
  regressions the trends of all plans, adjusted for their number; exit code 1 when one is degrading
  estimates   how often the authors were right
  due         plans with \`every\` and without a run that is evidence in this time; exit code 1 when one is overdue
  export      writes the index as tables: --parquet DIR, --jsonl DIR or --csv DIR
  anchor      signs the end of the index with your key: from then on nobody can change earlier lines unnoticed
  verify      checks the index, and each anchor; exit code 1 for a problem

${optionLines({ ...common, ...filters, ...verdictOption, ...acrossOption, ...keyOption, ...trustOption })}`

interface Asked {
  readonly values: Values & { readonly state: string | undefined; readonly config: string | undefined }
  readonly positionals: readonly string[]
  readonly out: Output
  readonly env: Env
}

interface Question {
  readonly positionals?: readonly string[]
  readonly options?: Options
  run(asked: Asked): Promise<number>
}

const questions: Readonly<Record<string, Question>> = {
  list: {
    options: { ...filters, ...verdictOption },
    async run(asked) {
      const runs = await filtered(asked)
      const last = typeof asked.values.last === 'number' ? asked.values.last : 20
      const grades = gradesIn(runs, last)
      return answer(asked, { runs, grades }, () => [
        ...rows(
          asked,
          ['RUN', 'PLAN', 'AT', 'VERDICT', 'REASONS'],
          runs.map(({ id, name, at, verdict, reasons }) => [
            id,
            name,
            dateOf(at),
            { text: verdict, tone: tones[verdict] },
            reasons.join(', '),
          ]),
        ),
        '',
        ...rows(
          asked,
          ['PLAN', 'GRADE', 'PASSED', 'WEAK', 'FAILED', 'NO EVIDENCE', 'REASONS'],
          grades.map(({ plan, grade, passed, weak, failed, noEvidence, reasons }) => [
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
      const run = (await storedRuns(asked.values, asked.env, [])).findLast(
        (one) => one.id === id || one.name === id,
      )
      if (run === undefined) throw new UnusableInput(`the index has no run ${id}`)
      return answer(asked, run, () => linesOf(run, asked))
    },
  },
  coverage: {
    options: filters,
    run: (asked) =>
      tableOf(asked, coverageIn, ['SERVER', 'FAULT', 'RUNS', 'EVIDENCE', 'LAST EVIDENCE'], (one) => [
        one.server,
        one.fault,
        one.runs,
        one.evidence,
        one.lastEvidenceAt === undefined ? 'never' : dateOf(one.lastEvidenceAt),
      ]),
  },
  recovery: {
    options: filters,
    run: (asked) =>
      tableOf(
        asked,
        recoveryIn,
        ['PLAN', 'RUNS', 'MEDIAN', 'WORST', 'NOT RECOVERED', 'PROMISED', 'KEPT'],
        (one) => [
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
      const own = await filtered(asked, ['treatment'])
      if (own.length === 0) throw new UnusableInput(`the index has no run of ${String(asked.values.plan)}`)
      const trends = trendMetrics.map((metric) => trendOf(own, metric, acrossIn(asked)))
      return answer(asked, trends, () => rows(asked, TREND_HEAD, trends.map(trendCells)))
    },
  },
  regressions: {
    options: { ...filters, ...acrossOption },
    async run(asked) {
      const found = regressions(await filtered(asked, ['treatment']), acrossIn(asked))
      await answer(asked, found, () =>
        rows(
          asked,
          ['PLAN', ...TREND_HEAD, 'ADJUSTED P'],
          found.map(({ name, trend, adjustedP }) => [
            name,
            ...trendCells(trend),
            numberOf(adjustedP ?? null),
          ]),
        ),
      )
      return found.some(({ trend, holds }) => holds && trend.answer === 'degrading') ? 1 : 0
    },
  },
  estimates: {
    options: filters,
    run: (asked) =>
      tableOf(asked, estimatesIn, ['PLAN', 'ESTIMATE', 'RIGHT', 'OF', '95 % INTERVAL'], (one) => [
        one.plan,
        one.of,
        one.right,
        one.estimates,
        `${percent(one.low)} to ${percent(one.high)}`,
      ]),
  },
  due: {
    options: filters,
    async run(asked) {
      const due = dueIn(await filtered(asked), systemClock.wall())
      await answer(asked, due, () =>
        rows(
          asked,
          ['PLAN', 'EVERY', 'LAST EVIDENCE', 'DUE', ''],
          due.map(({ plan, everyMs, lastAt, dueAt, isOverdue }) => [
            plan,
            formatDuration(everyMs),
            lastAt === undefined ? 'never' : dateOf(lastAt),
            dateOf(dueAt),
            isOverdue ? { text: 'overdue', tone: 'bad' } : '',
          ]),
        ),
      )
      return due.some(({ isOverdue }) => isOverdue) ? 1 : 0
    },
  },
  anchor: { options: keyOption, run: anchor },
  verify: { options: trustOption, run: verify },
}

/** `breakwater runs`: questions about the index of runs. */
export function runs([name = '', ...rest]: readonly string[], out: Output, env: Env): Promise<number> {
  if (name === 'export') return exportRuns(rest, out, env)
  const question = Object.hasOwn(questions, name) ? questions[name] : undefined
  const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : question === undefined ? [] : rest
  const { options, positionals = [] } = question ?? {}
  return runCommand(own, { usage, options: { ...common, ...options }, positionals }, out, (values, given) => {
    if (question === undefined) throw new Misuse(unknownCommand(name, [...Object.keys(questions), 'export']))
    return question.run({ values, positionals: given, out, env })
  })
}

const tones: Readonly<Record<Verdict, Tone>> = {
  passed: 'good',
  'held (weak)': 'doubtful',
  failed: 'bad',
  'no evidence': 'doubtful',
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
      'differ' in trend ? `the runs differ in ${trend.differ.join(', ')}` : mixed,
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

/** `arms`: the arms whose durations are read; default none. */
async function filtered(
  { values, env }: Asked,
  arms: readonly string[] = [],
): Promise<readonly RunSummary[]> {
  const all = await storedRuns(values, env, arms)
  const found = all.filter(
    ({ name, targets, verdict }) =>
      (values.plan === undefined || name === values.plan) &&
      (values.server === undefined || targets.some(({ server }) => server === values.server)) &&
      (values.verdict === undefined || verdict === values.verdict),
  )
  return typeof values.last === 'number' ? found.slice(-values.last) : found
}

async function tableOf<Row>(
  asked: Asked,
  ask: (runs: readonly RunSummary[]) => readonly Row[],
  head: readonly string[],
  cells: (row: Row) => readonly Cell[],
): Promise<number> {
  const found = ask(await filtered(asked))
  return answer(asked, found, () => rows(asked, head, found.map(cells)))
}

function answer({ values, out }: Asked, data: unknown, lines: () => readonly string[]): Promise<number> {
  if (values.json === true) out.stdout(JSON.stringify(data, undefined, 2))
  else for (const line of lines()) out.stdout(line)
  return Promise.resolve(0)
}

const rows = (
  { out }: Asked,
  head: readonly string[],
  cells: readonly (readonly Cell[])[],
): readonly string[] =>
  cells.length === 0 ? ['no runs'] : table(head, cells, out.width ?? Infinity, paintOf({ out }))

function linesOf(run: RunSummary, asked: Asked): readonly string[] {
  const { name, id, verdict, reasons, at, tookMs, by, approver, approverProof, environment, rto } = run
  return [
    `${name} (${id}): ${verdict}${reasons.length === 0 ? '' : `: ${reasons.join(', ')}`}`,
    `${dateOf(at)}, for ${roundedDuration(tookMs)}, in ${environment}, by ${by}${approver === null ? '' : `, approved by ${approver} (${approverProof ?? 'claimed'})`}`,
    `recovery: ${timeOf(rto.measuredMs ?? undefined)}, promised: ${timeOf(rto.promisedMs ?? undefined)}`,
    '',
    ...rows(
      asked,
      ['CLAIM', 'STATUS', 'VALUE', '95 % INTERVAL', 'CALLS'],
      run.claims.map(({ text, status, value, low, high, n }) => [
        text,
        status,
        numberOf(value),
        low === null && high === null ? '–' : `${numberOf(low)} to ${numberOf(high)}`,
        n,
      ]),
    ),
    '',
    ...rows(
      asked,
      ['FAULT', 'TYPE', 'APPLIED', 'MASKED', 'DELAYED', 'SURFACED', 'ESCAPED', 'NOT REACHED'],
      run.faults.map((one) => [
        one.name,
        one.type,
        one.applied,
        one.masked,
        one.delayed,
        one.surfaced,
        one.escaped,
        one.notReached,
      ]),
    ),
  ]
}

const numberOf = (value: number | null) => (value === null ? 'unknown' : String(Number(value.toPrecision(4))))
const percent = (share: number) => `${Math.round(share * 100)} %`
const dateOf = (at: number) => new Date(at).toISOString().replace('T', ' ').slice(0, 16)
const timeOf = (ms: number | undefined) => (ms === undefined ? '–' : roundedDuration(ms))

/** Anchors, one JSON line each; copies elsewhere outlive the folder. */
const ANCHORS = 'runs.anchors.jsonl'

async function anchor({ values, out, env }: Asked): Promise<number> {
  const index = await storedIndex(values, env, [])
  if (index.problems.length > 0)
    throw new UnusableInput(`the index cannot be anchored:\n${index.problems.join('\n')}`)
  const document = anchorOf(index, systemClock.wall())
  if (document === undefined) throw new UnusableInput(`${index.folder} has no index of runs`)
  const signed = { anchor: document, signature: (await signerOf({ values, out }))('anchor', document) }
  await appendFile(join(index.folder, ANCHORS), `${JSON.stringify(signed)}\n`, { mode: 0o600 })
  out.stdout(JSON.stringify(signed))
  out.stderr(
    `breakwater: ${numbered(document.runs, 'run')} anchored; keep this line where the gateway cannot write`,
  )
  return 0
}

async function verify(asked: Asked): Promise<number> {
  const { values, out, env } = asked
  const index = await storedIndex(values, env, [])
  const text = await readFile(join(index.folder, ANCHORS), 'utf8').catch(() => '')
  const trusted = await trustedKeys(values, env)
  const problems = [...index.problems]
  let anchored = 0
  for (const [at, line] of text.split('\n').filter(Boolean).entries()) {
    const read = signedAnchorSchema.safeParse(jsonIn(line))
    const why = read.success ? unprovenBy(read.data, index, trusted) : 'is no anchor'
    if (why !== undefined)
      problems.push(`anchor ${at + 1} ${why}`.replace('anchor 1 the anchor', 'the anchor'))
    else anchored = Math.max(anchored, read.data!.anchor.runs)
  }
  const count = index.runs.length
  const found = { runs: count, anchored, problems }
  await answer(asked, found, () => [
    ...problems,
    problems.length > 0
      ? numbered(problems.length, 'problem')
      : `${numbered(count, 'run')}, whole; ${anchored} of these proved by an anchor`,
  ])
  if (anchored === 0 && problems.length === 0)
    out.stderr(
      'breakwater: no anchor: whoever can read the key of the state folder could have changed the index',
    )
  return problems.length === 0 ? 0 : 1
}

const jsonIn = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns trusted public keys by name: those of the options, else those of the config. */
async function trustedKeys({ trust, config }: Asked['values'] & Values, env: Env) {
  const given = (Array.isArray(trust) ? trust : []) as readonly string[]
  const keys = new Map<string, string>()
  for (const one of given) {
    const [name = '', key = ''] = one.split(/=(.*)/s)
    if (readPublicKey(key) === undefined) throw new Misuse(`--trust must be NAME=PUBLIC KEY, not ${one}`)
    keys.set(name, key)
  }
  if (given.length > 0 || typeof config !== 'string') return keys
  const loaded = await loadConfig(config, env)
  for (const { name, key } of (loaded.ok && loaded.config.gateway.controlMcp?.trust) || [])
    keys.set(name, key)
  return keys
}
