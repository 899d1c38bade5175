import type { Interval } from '../../../experiments/statistics/unit-estimates.ts'
import { rules } from '../../../judge/index.ts'
import type { RuleSummary, TaskFinding } from '../../../judge/verdicts.ts'
import type { Paint } from '../../../telemetry/colours.ts'
import { printable } from '../../../telemetry/printable.ts'
import { numbered } from '../../../units/numbered.ts'
import { table } from '../../shared/table.ts'
import { foundOf, percent, type Report } from './report.ts'

/** Most findings of a text report. */
const SHOWN = 50

/** Most lines of calls that a finding names. */
const SHOWN_CALLS = 8

/** Returns the report for people. `width`: characters per line. */
export function judgementText(report: Report, width: number, paint?: Paint): string {
  const { file, calls, tasks, strayCalls, findings, baselineFile, notes } = report
  const stray = strayCalls === 0 ? '' : `, and ${numbered(strayCalls, 'call')} without a task`
  const more = findings.length - SHOWN
  const lines = [
    `${printable(file)}: ${numbered(tasks, 'task')}, ${numbered(calls, 'call')}${stray}`,
    ...(baselineFile === undefined ? [] : [`baseline: ${printable(baselineFile)}`]),
    ...notes.map((note) => `note: ${printable(note, 1_000)}`),
    '',
    ...table(heads(baselineFile !== undefined), report.rules.map(rowOf), width, paint),
    ...whyUndecided(report),
    ...(findings.length === 0 ? [] : ['', ...findings.slice(0, SHOWN).flatMap(linesOf)]),
    ...(more > 0 ? [`and ${more} more findings: --format json lists all`] : []),
  ]
  return lines.join('\n')
}

const heads = (hasBaseline: boolean) => [
  'rule',
  'found',
  'share',
  '95 % interval',
  ...(hasBaseline ? ['baseline', 'difference', '95 % interval'] : []),
]

function rowOf(summary: RuleSummary): string[] {
  const { rule, share, baseline, difference } = summary
  const own = [rule, foundOf(summary), shareOf(share, 'estimate'), rangeOf(share)]
  if (baseline === undefined) return own
  return [
    ...own,
    baseline.decidable === 0 ? 'not decidable' : `${baseline.found} of ${baseline.decidable}`,
    shareOf(difference ?? null, 'estimate'),
    rangeOf(difference ?? null),
  ]
}

const shareOf = (interval: Interval | null, end: keyof Interval) =>
  interval === null ? '' : percent(interval[end])

const rangeOf = (interval: Interval | null) =>
  interval === null ? '' : `${shareOf(interval, 'low')} to ${shareOf(interval, 'high')}`

function whyUndecided({ rules }: Report): string[] {
  const why = rules.flatMap(({ rule, undecided }) =>
    undecided.map(({ why, tasks }) => `  ${rule}: ${numbered(tasks, 'task')}, because ${why}`),
  )
  return why.length === 0 ? [] : ['', 'not decidable:', ...why]
}

function linesOf({ rule, level, task, message, calls, fault }: TaskFinding): string[] {
  const by = fault === undefined ? '' : `, after the fault ${fault}`
  const more = calls.length - SHOWN_CALLS
  const places = calls.slice(0, SHOWN_CALLS).map(({ file, line }) => `${file}:${line}`)
  const shown = `${places.join(' ')}${more > 0 ? ` and ${more} more` : ''}`
  return [
    `${level} ${rule}: the agent of task ${printable(task)} ${rules[rule].title}`,
    `  ${printable(message, 1_000)}${printable(by)}`,
    `  ${printable(shown, 2_000)}`,
  ]
}
