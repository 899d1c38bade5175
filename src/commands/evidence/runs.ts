import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readOrNothing } from '../../chaos/journal/head.ts'
import { formatIssue } from '../../config/issues/issues.ts'
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
import { parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
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
import { configFile, storedIndex, type StoredIndex, storedRuns, storedRunsOptions } from './stored-runs.ts'

const common = { ...storedRunsOptions, json: { kind: 'flag', about: 'the answer as JSON' } } as const

const chosen = {
  plan: { kind: 'text', value: 'NAME', about: 'only runs of this plan' },
  server: { kind: 'text', value: 'NAME', about: 'only runs at this server' },
} as const

const filters = {
  ...chosen,
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

const trustOptions = {
  anchors: {
    kind: 'text',
    value: 'FILE',
    about: 'your own copy of anchors, checked beside the anchors in the state folder',
  },
  trust: {
    kind: 'list',
    value: 'NAME=KEY',
    about:
      'a trusted public key; an anchor is then required (default: gateway.controlMcp.trust of the config)',
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

${optionLines({ ...common, ...filters, ...verdictOption, ...acrossOption, ...keyOption, ...trustOptions })}

  Exit codes: 0; 1 as above, for \`due\` and \`regressions\` over a damaged index, and when the index cannot be read; 2 for
  wrong arguments.`

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
      const ofPlans = chosenRuns(await storedRuns(asked.values, asked, []), asked)
      const { verdict: only, last } = asked.values
      const runs = lastOf(
        ofPlans.filter(({ verdict }) => only === undefined || verdict === only),
        last,
      )
      // Grades are over all runs of a plan: a choice by verdict would choose the grade.
      const grades = gradesIn(ofPlans, typeof last === 'number' ? last : 20)
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
      const { runs } = await storedRuns(asked.values, asked, [])
      // A plan may have the id of another run as its name.
      const run = runs.find((one) => one.id === id) ?? runs.findLast((one) => one.name === id)
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
      const { runs: own } = await filtered(asked, ['treatment'])
      if (own.length === 0) throw new UnusableInput(`the index has no run of ${String(asked.values.plan)}`)
      const trends = trendMetrics.map((metric) => trendOf(own, metric, acrossIn(asked)))
      return answer(asked, trends, () => rows(asked, TREND_HEAD, trends.map(trendCells)))
    },
  },
  regressions: {
    options: { ...filters, ...acrossOption },
    async run(asked) {
      const { runs, damage } = await filtered(asked, ['treatment'])
      const found = regressions(runs, acrossIn(asked))
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
      const isWorse = found.some(({ trend, holds }) => holds && trend.answer === 'degrading')
      return isWorse || damage !== undefined ? 1 : 0
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
    options: chosen,
    async run(asked) {
      const { runs, damage } = await filtered(asked)
      const due = dueIn(runs, systemClock.wall())
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
      return due.some(({ isOverdue }) => isOverdue) || damage !== undefined ? 1 : 0
    },
  },
  anchor: { options: keyOption, run: anchor },
  verify: { options: trustOptions, run: verify },
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

/** Returns the index with the chosen runs only. `arms`: the arms whose durations are read; default none. */
async function filtered(asked: Asked, arms: readonly string[] = []): Promise<StoredIndex> {
  const index = await storedRuns(asked.values, asked, arms)
  return { ...index, runs: lastOf(chosenRuns(index, asked), asked.values.last) }
}

const chosenRuns = ({ runs }: StoredIndex, { values: { plan, server } }: Asked): readonly RunSummary[] =>
  runs.filter(
    ({ name, targets }) =>
      (plan === undefined || name === plan) &&
      (server === undefined || targets.some((target) => target.server === server)),
  )

const lastOf = (runs: readonly RunSummary[], last: unknown): readonly RunSummary[] =>
  typeof last === 'number' ? runs.slice(-last) : runs

async function tableOf<Row>(
  asked: Asked,
  ask: (runs: readonly RunSummary[]) => readonly Row[],
  head: readonly string[],
  cells: (row: Row) => readonly Cell[],
): Promise<number> {
  const found = ask((await filtered(asked)).runs)
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
  const { id, verdict, reasons, at, tookMs, approver, approverProof, environment, rto } = run
  // A line break in a name would begin a line of its own, such as a false approval.
  const [name, by] = [printable(run.name), printable(run.by)]
  return [
    `${name} (${id}): ${verdict}${reasons.length === 0 ? '' : `: ${reasons.join(', ')}`}`,
    `${dateOf(at)}, for ${roundedDuration(tookMs)}, in ${environment}, by ${by}${approver === null ? '' : `, approved by ${printable(approver)} (${approverProof ?? 'claimed'})`}`,
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
  const path = join(index.folder, ANCHORS)
  const known = await anchorsIn(path)
  const signed = { anchor: document, signature: (await signerOf({ values, out }))('anchor', document) }
  // The line of a process that ended while writing must not spoil this line.
  const begin = known === '' || known.endsWith('\n') ? '' : '\n'
  await appendFile(path, `${begin}${JSON.stringify(signed)}\n`, { mode: 0o600 })
  out.stdout(JSON.stringify(signed))
  out.stderr(
    `breakwater: ${numbered(document.runs, 'run')} anchored; keep this line where the gateway cannot write`,
  )
  return 0
}

/**
 * Returns the text of a file with anchors; empty without a file. Rejects with an `UnusableInput`: anchors that cannot be
 * read must not look like no anchors.
 */
async function anchorsIn(path: string): Promise<string> {
  const text = await readOrNothing(path).catch((error: Error) => {
    throw new UnusableInput(`the anchors in ${path} cannot be read: ${error.message}`)
  })
  return text ?? ''
}

async function verify(asked: Asked): Promise<number> {
  const { values, out, env } = asked
  const index = await storedIndex(values, env, [])
  const own = typeof values.anchors === 'string' ? values.anchors : undefined
  const copies = own === undefined ? '' : await anchorsIn(own)
  if (own !== undefined && copies.trim() === '') throw new UnusableInput(`${own} holds no anchor`)
  const trusted = await trustedKeys(values, env)
  const problems = [...index.problems]
  let anchored = 0
  let hasAnchor = false
  for (const [path, text] of [
    [ANCHORS, await anchorsIn(join(index.folder, ANCHORS))],
    [own, copies],
  ] as const)
    for (const [at, line] of text.split('\n').filter(Boolean).entries()) {
      const read = signedAnchorSchema.safeParse(parseJson(line))
      const why = read.success ? unprovenBy(read.data, index, trusted) : 'it is no anchor'
      if (why !== undefined) problems.push(`anchor ${at + 1} of ${path}: ${why}`)
      else {
        hasAnchor = true
        anchored = Math.max(anchored, read.data!.anchor.runs)
      }
    }
  // A user who names a key asks for a proof.
  const isAsked = Array.isArray(values.trust) && values.trust.length > 0
  if (isAsked && !hasAnchor) problems.push('no anchor of a trusted person proves a line')
  const count = index.runs.length
  const found = { runs: count, anchored, problems }
  await answer(asked, found, () => [
    ...problems,
    problems.length > 0
      ? numbered(problems.length, 'problem')
      : `${numbered(count, 'run')}, whole; ${anchored} of these proved by an anchor`,
  ])
  if (!hasAnchor && problems.length === 0)
    out.stderr(
      'breakwater: no anchor: whoever can read the key of the state folder could have changed the index',
    )
  return problems.length === 0 ? 0 : 1
}

/** Returns trusted public keys by name: those of the options, else those of the config. */
async function trustedKeys(values: Asked['values'], env: Env): Promise<ReadonlyMap<string, string>> {
  const { trust } = values as Values
  const given = (Array.isArray(trust) ? trust : []) as readonly string[]
  const keys = new Map<string, string>()
  for (const one of given) {
    const [name = '', key = ''] = one.split(/=(.*)/s)
    if (readPublicKey(key) === undefined) throw new Misuse(`--trust must be NAME=PUBLIC KEY, not ${one}`)
    if (keys.has(name)) throw new Misuse(`--trust names ${name} twice`)
    keys.set(name, key)
  }
  const file = given.length > 0 ? undefined : await configFile(values)
  if (file === undefined) return keys
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  for (const { name, key } of loaded.config.gateway.controlMcp?.trust ?? []) keys.set(name, key)
  return keys
}
