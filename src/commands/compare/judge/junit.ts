import type { RuleSummary, TaskFinding } from '../../../judge/verdicts.ts'
import { numbered } from '../../../units/numbered.ts'
import { element, escaped } from '../../shared/xml.ts'
import { foundOf, type Report } from './report.ts'

/** Most findings in a case. */
const SHOWN = 50

/**
 * Returns a suite with a case per rule. Without conditions, a rule fails by a finding; with conditions, a rule fails by
 * a condition that is met. A rule without a decidable task is skipped.
 */
export function judgementJunit(report: Report): string {
  const cases = report.rules.map((summary) => ({ summary, kind: kindOf(summary, report) }))
  const count = (kind: Kind) => cases.filter((one) => one.kind === kind).length
  const numbers = { tests: cases.length, failures: count('failure'), errors: 0, skipped: count('skipped') }
  const written = cases.map(({ summary, kind }) => caseOf(summary, kind, report))
  const timestamp = report.startedAt.replace(/Z$/, '')
  const properties = element('properties', {}, [
    element('property', { name: 'recording', value: report.file }),
    element('property', { name: 'tasks', value: report.tasks }),
    element('property', { name: 'calls', value: report.calls }),
  ])
  const suite = element('testsuite', { name: 'agents', ...numbers, time: '0.000', timestamp }, [
    properties,
    ...written,
  ])
  const all = element('testsuites', { name: 'breakwater judge', ...numbers, time: '0.000' }, [suite])
  return `<?xml version="1.0" encoding="UTF-8"?>\n${all}\n`
}

type Kind = 'pass' | 'failure' | 'skipped'

function kindOf({ rule, found, decidable }: RuleSummary, { conditions }: Report): Kind {
  if (decidable === 0) return 'skipped'
  if (conditions.length === 0) return found > 0 ? 'failure' : 'pass'
  return conditions.some(({ condition, met }) => condition.rule === rule && met === 'met')
    ? 'failure'
    : 'pass'
}

function caseOf(summary: RuleSummary, kind: Kind, { findings }: Report): string {
  const { rule, undecided } = summary
  const name = { name: rule, classname: 'breakwater.judge', time: '0.000' }
  if (kind === 'skipped') {
    const message = undecided.map(({ why, tasks }) => `${numbered(tasks, 'task')}: ${why}`).join('; ')
    return element('testcase', name, [element('skipped', { message })])
  }
  const own = findings.filter((one) => one.rule === rule)
  const lines = own.slice(0, SHOWN).map((finding) => escaped(lineOf(finding)))
  const more = own.length - lines.length
  if (more > 0) lines.push(`and ${more} more findings`)
  const message = foundOf(summary)
  const inside =
    kind === 'pass'
      ? element('system-out', {}, [escaped(message), ...lines])
      : element('failure', { message, type: rule }, lines)
  return element('testcase', name, [inside])
}

const lineOf = ({ level, message, calls, fault }: TaskFinding) =>
  `${level}: ${message}${fault === undefined ? '' : `, after the fault ${fault}`}: ${placesOf(calls)}`

const placesOf = (calls: TaskFinding['calls']) => calls.map(({ file, line }) => `${file}:${line}`).join(' ')
