import { stringify } from 'yaml'
import { z } from 'zod'
import { subjects } from '../../claims/subjects.ts'
import type { SearchOptions } from './checkpoint.ts'
import type { Finding } from './findings.ts'
import { type Genome, type Gene, MOST_FAULTS, typeNames, writtenFaults } from './plan-space.ts'
import type { SearchResult } from './search.ts'
import { type Measured, OUTAGE, type SliName, sliNames, type Slo } from './slo.ts'
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

const name = z.string().regex(/^[\w.-]{1,64}$/)
const fault = z.looseObject({
  type: z.enum(typeNames),
  rate: z.number().gt(0).max(1),
  match: z.strictObject({ server: name, tool: name.optional() }).optional(),
  when: z
    .strictObject({
      burst: z.strictObject({ meanLength: z.number(), per: z.enum(['slot', 'call']) }).optional(),
      window: z.strictObject({ from: z.number(), to: z.number() }).optional(),
    })
    .optional(),
})

/** The fields of a report in JSON that a reader needs. */
const reportSchema = z.looseObject({
  slo: z.strictObject({ sli: z.enum(sliNames as [SliName]), target: z.number().gt(0) }),
  options: z.looseObject({ policies: z.string(), set: z.string(), tools: z.string(), seed: z.number() }),
  findings: z
    .array(
      z.looseObject({
        plan: z.array(fault).min(1).max(MOST_FAULTS),
        confirmed: z.looseObject({ values: z.array(z.number()).min(1), excess: z.number() }),
        containedBy: z.array(z.string()),
      }),
    )
    .max(100),
})

/** Reads a report of `inJson`; undefined for any other value. */
export function reportIn(value: unknown) {
  const read = reportSchema.safeParse(value)
  if (!read.success) return undefined
  const { slo, options, findings } = read.data
  const { unit, better } = subjects[slo.sli]
  return {
    seed: options.seed,
    /** Hash of the simulated policies, and the name of their policy set; `none` for no set. */
    policies: options.policies,
    set: options.set,
    servers: [...new Set(options.tools.split(',').map((tool) => tool.split('/')[0]!))],
    /** The objective as a limit on calls. A share of failed tasks limits failed calls too: one fails its task. */
    limit: {
      metric: unit === 'ms' ? ('p95' as const) : ('error_ratio' as const),
      most: better === 'higher' ? 1 - slo.target : slo.target,
    },
    findings: findings.map(({ plan, confirmed: { values, excess }, containedBy }) => ({
      faults: plan,
      inShort: inShort(plan.map(geneOf)).join(' + '),
      violation: `${slo.sli} ${meanInWords(values, (one) => valueOf(slo, one))}, ${beyond({ excess })} (${objective(slo)})`,
      runs: values.length,
      excess,
      containedBy,
    })),
  }
}

/** Returns a written fault as a gene: the reverse of `writtenFaults`. */
function geneOf({ type, rate, match, when, ...rest }: z.output<typeof fault>): Gene {
  const { name, ttl, maxConcurrent, ...options } = rest
  return { type, rate, match: match ?? {}, when: when ?? {}, options } as Gene
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

const beyond = ({ excess }: Pick<Measured, 'excess'>) =>
  `${(excess * 100).toFixed(0)} % over the SLO's allowance`

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
