import { type Block, markdownBlock, markdownLine } from '../../../experiments/blocks.ts'
import { pairedMarkdown } from '../../../experiments/paired-text.ts'
import { differencesInWords, type ReplayReport, replayMarkdown } from '../../../sim/replay-text.ts'
import { roundedDuration } from '../../../units/duration.ts'
import type { Missing, Proposed } from './change.ts'
import type { Cycle } from './file.ts'
import type { Steps } from './steps.ts'

/** The result of a cycle. */
export interface Played {
  readonly cycle: Cycle
  readonly steps: Steps
  /** Undefined when the script proposes no change. */
  readonly change: Proposed | undefined
}

/** The fields of a run's summary that the text shows. */
interface Summary {
  readonly run: string
  readonly state: string
  readonly plan: string
  readonly approver?: string
  readonly proved?: string
  readonly injected: number
  readonly untrusted?: { readonly reason?: string }
  readonly before: readonly Judged[]
  readonly after: readonly Judged[]
  readonly sequence: readonly { readonly atMs: number; readonly sign: string; readonly what: string }[]
  readonly estimateRows: readonly { of: string; expected: string; found: string; isRight: boolean }[]
}

interface Judged {
  readonly claim: string
  readonly found: string
  readonly holds?: boolean | null
}

/** Returns a played cycle as Markdown. */
export function cycleMarkdown({ cycle, steps, change }: Played): string {
  const run = steps.analysis.answers.get_run!.data as unknown as Summary
  return [
    `# Cycle: ${markdownLine(run.plan)} on ${markdownLine(cycle.server)}`,
    ...section('1. Hypothesis', [cycle.hypothesis, ...figuresOf(steps, cycle.server)]),
    ...section('2. Plan', planOf(cycle, steps)),
    ...section('3. Run', runOf(run)),
    ...section('4. Analysis', analysisOf(run)),
    '## 5. Proposed change of policies',
    ...changeOf(change),
  ].join('\n\n')
}

const section = (title: string, blocks: readonly Block[]) => [`## ${title}`, ...blocks.map(markdownBlock)]

/** Returns a value of an answer in words: `errorRatio 0.5, interval 0.4 to 0.6`. */
function inWords(value: unknown): string {
  if (value === undefined || value === null) return 'unknown'
  if (Array.isArray(value)) return value.map(inWords).join(' to ')
  if (typeof value === 'string') return value
  if (typeof value !== 'object') return JSON.stringify(value)
  return Object.entries(value)
    .map(([name, held]) =>
      name.endsWith('Ms') && typeof held === 'number'
        ? `${name.slice(0, -2)} ${roundedDuration(held)}`
        : `${name} ${inWords(held)}`,
    )
    .join(', ')
}

function figuresOf({ hypothesis: { answers } }: Steps, server: string): Block[] {
  const rows = answers.list_servers!.data.rows as Record<string, unknown>[]
  const row = rows.find((one) => one.server === server) ?? {}
  const suggested = answers.suggest_next!.data.rows as { kind: string; reason: string }[]
  return [
    {
      list: [
        `state ${inWords(row.state)}, ${inWords(row.callsPerMinute)} calls a minute, p95 ${inWords(row.p95Ms)}${typeof row.p95Ms === 'number' ? ' ms' : ''}`,
        answers.list_incidents!.text,
        ...suggested.map(({ kind, reason }) => `${kind}: ${reason}`),
      ],
    },
  ]
}

function planOf({ why, expect }: Cycle, { plan: { answers } }: Steps): Block[] {
  const estimate = answers.estimate_blast_radius!.data
  const { proposal, needs, planHash } = answers.propose_run!.data
  return [
    why,
    {
      list: [
        `hits a minute in the last stage: ${inWords(estimate.hitsPerMinute)}`,
        `expected by the traffic: ${inWords(estimate.predicted)}`,
        `expected by the author: ${expect === undefined ? 'no estimate' : inWords(expect)}`,
        `proposal ${inWords(proposal)}, plan ${inWords(planHash)}, needs ${inWords(needs)}`,
      ],
    },
  ]
}

function runOf({ run, state, approver, proved, injected, untrusted }: Summary): Block[] {
  return [
    {
      list: [
        `run ${run}: ${state.replaceAll('_', ' ')}: ${untrusted?.reason ?? ''}`,
        `approved by ${approver ?? 'nobody'}${proved === undefined ? '' : `, proved by ${proved}`}`,
        `injected faults: ${injected}`,
      ],
    },
  ]
}

function analysisOf({ injected, before, after, sequence, estimateRows }: Summary): Block[] {
  const right = estimateRows.filter(({ isRight }) => isRight).length
  const claims = [
    ...before.map((one) => ['before', one] as const),
    ...after.map((one) => ['after', one] as const),
  ].map(([when, { claim, found, holds }]) => [
    when,
    claim,
    found,
    holds === true ? 'yes' : holds === false ? 'no' : 'not measured',
  ])
  const signs = sequence.map(({ atMs, sign, what }) => [roundedDuration(atMs), sign, what])
  return [
    injected === 0
      ? 'The run proves nothing: no fault was injected.'
      : `The run injected ${injected} faults.`,
    ...table(['when', 'claim', 'found', 'holds'], claims),
    ...table(['time', 'sign', 'value in the treatment'], signs),
    estimateRows.length === 0
      ? 'The author gave no estimates.'
      : `Estimates: ${right} of ${estimateRows.length} right.`,
    ...table(
      ['estimate', 'expected', 'found', 'right'],
      estimateRows.map(({ of, expected, found, isRight }) => [of, expected, found, isRight ? 'yes' : 'no']),
    ),
  ]
}

const table = (head: readonly string[], rows: readonly (readonly string[])[]): Block[] =>
  rows.length === 0 ? [] : [{ table: { head, rows, numbers: Infinity } }]

function changeOf(change: Proposed | undefined): string[] {
  if (change === undefined) return ['The script proposes no change.']
  const { config, diff, effect, harm, replay, comparison } = change
  return [
    `A person decides, and applies the diff to ${markdownLine(config)}.`,
    markdownBlock({ list: [`expected effect: ${effect}${replayed(replay)}`, `does harm under: ${harm}`] }),
    fenced(diff.trimEnd()),
    isMissing(replay) ? missing('replay', replay) : nested(replayMarkdown(replay)),
    isMissing(comparison) ? missing('comparison', comparison) : nested(pairedMarkdown(comparison)),
  ]
}

/** Returns the difference that the replay found, to stand beside the expected effect. */
function replayed(replay: ReplayReport | Missing): string {
  const words = isMissing(replay) ? undefined : differencesInWords(replay)
  return words === undefined ? '' : `; the replay found: ${words}`
}

/** Returns a text in a fence longer than any run of backticks in the text. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length))
  const fence = '`'.repeat(longest + 1)
  return `${fence}diff\n${text}\n${fence}`
}

const isMissing = (evidence: object): evidence is Missing => 'missing' in evidence

const missing = (of: string, { missing: why }: Missing) => `No ${of}: ${markdownLine(why)}.`

/** Puts the headings of a report two levels lower. */
const nested = (report: string) => report.replace(/^#(?=#* )/gm, '###')
