import { subjects } from '../../claims/subjects.ts'
import { stringify } from 'yaml'
import type { SearchOptions } from './checkpoint.ts'
import type { Finding } from './findings.ts'
import { type Genome, type Gene, writtenFaults } from './plan-space.ts'
import type { SearchResult } from './search.ts'
import { type Measured, OUTAGE, type Slo } from './slo.ts'
import { meanInWords } from '../statistics.ts'
import { formatDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'

const RULE = `a finding: under each of three sets of seeds, the mean of its runs lies beyond the SLO by more than its standard error, but is no outage (${OUTAGE + 1} times the SLO's allowance); its figure is from the third set, used once after shrinking`

export function inText(result: SearchResult, slo: Slo): string {
  const { findings, baseline, evaluated, counts, cacheHits, refuted, unconfirmed, alike } = result
  const { sli } = slo
  const found = findings.map((finding, at) =>
    [
      `${at + 1}. ${sli} ${valueOf(slo, baseline.mean)} → ${withError(slo, finding.confirmed)}, ${beyond(finding.confirmed)} (in the search ${withError(slo, finding.searched)}, in the check ${withError(slo, finding.checked)})`,
      ...inShort(finding.plan).map((line) => `     ${line}`),
      `   found as ${inShort(finding.found).join(' + ')}: ${withError(slo, finding.foundWith)}`,
      ...(finding.containedBy.length === 0
        ? ['   no single policy change that was tried contains it']
        : [`   contained by ${finding.containedBy.join('\n            or   ')}`]),
    ].join('\n'),
  )
  return [
    `SLO ${objective(slo)}; without faults ${valueOf(slo, baseline.mean)}`,
    findings.length === 0 ? 'No plan violates it slightly.' : found.join('\n'),
    '',
    `${numbered(evaluated, 'plan')}: ${Object.entries(counts)
      .map(([name, count]) => `${count} ${name}`)
      .join(', ')}; ${cacheHits} repeated`,
    `${refuted} violated in the search but not in the check, ${unconfirmed} shrunk forms were not confirmed under the third set of seeds, ${alike} were like earlier findings`,
    RULE,
  ].join('\n')
}

export function inJson(result: SearchResult, { sli, target }: Slo, options: SearchOptions): string {
  const { findings, baseline, ...counts } = result
  const told = findings.map(({ found, plan, ...figures }) => ({
    ...figures,
    found: writtenFaults(found),
    plan: writtenFaults(plan),
  }))
  return JSON.stringify(
    { slo: { sli, target }, options, rule: RULE, baseline, ...counts, findings: told },
    undefined,
    2,
  )
}

/** Returns a plan as a `chaos` block for a file, with its measurements and the search options. */
export function planFile(
  finding: Finding,
  { baseline }: SearchResult,
  { slo, options, seed }: { readonly slo: Slo; readonly options: SearchOptions; readonly seed: number },
): string {
  const { confirmed, checked, searched, containedBy, plan } = finding
  const comment = [
    `Slightly violates ${objective(slo)}: ${slo.sli} ${withError(slo, confirmed)} under seeds not used to find the plan,`,
    `${withError(slo, searched)} in the search, ${withError(slo, checked)} in the check, and ${valueOf(slo, baseline.mean)} without faults (means with standard errors).`,
    `Contained by: ${containedBy.length === 0 ? 'none of the single policy changes that were tried' : containedBy.join(', or ')}`,
    `Found on simulated servers by breakwater search with ${Object.entries(options)
      .map(([name, value]) => `${name}=${value}`)
      .join(' ')}`,
    'Load it as chaos: { file: … } in a gateway with these servers; it has no effect until enabled.',
  ]
  const block = { enabled: false, seed, faults: writtenFaults(plan) }
  return `${comment.map((line) => `# ${line}`).join('\n')}\n${stringify(block, { lineWidth: 0 })}`
}

const objective = ({ sli, target }: Slo) =>
  `${sli} ${subjects[sli].better === 'higher' ? '≥' : '≤'} ${subjects[sli].unit === 'ms' ? `${target} ms` : percent(target)}`

const percent = (ratio: number) => `${Number((ratio * 100).toFixed(3))} %`

const valueOf = ({ sli }: Slo, value: number) =>
  subjects[sli].unit === 'ms' ? `${value.toFixed(1)} ms` : percent(value)

const withError = (slo: Slo, { values }: Measured) => meanInWords(values, (value) => valueOf(slo, value))

const beyond = ({ excess }: Measured) => `${(excess * 100).toFixed(0)} % over the SLO's allowance`

function inShort(plan: Genome): string[] {
  return plan.map(({ type, match: { server, tool }, rate, when: { burst, window }, options }: Gene) =>
    [
      `${type} at ${percent(rate)} of ${server === undefined ? 'all calls' : tool === undefined ? server : `${server}/${tool}`}`,
      ...(burst === undefined ? [] : [`in bursts of ${burst.meanLength} ${burst.per}s`]),
      ...(window === undefined
        ? []
        : [`from ${formatDuration(window.from)} to ${formatDuration(window.to)}`]),
      ...Object.entries(options).map(
        ([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`,
      ),
    ].join(', '),
  )
}
