import { faults as types } from '../../chaos/faults/index.ts'
import { policiesOf } from '../../config/call-timeouts.ts'
import { configHash } from '../../config/hash.ts'
import { hashOf } from '../../experiments/guarded/spec.ts'
import type { Millis } from '../../mesh/clock.ts'
import { numbered } from '../../units/numbered.ts'
import { provenRuns, type Suggestion } from './next-target.ts'
import type { ReportedFinding, SearchReport } from './plans.ts'
import type { Operations } from './tool.ts'
import { quoted } from './untrusted.ts'

/** Share of the treatment in the suggested stage. */
const SHARE = 0.1

/** Number of injected faults that the stage needs. */
const HITS = 5

/** Maximum duration of the stage, in milliseconds: 30 minutes. */
const LONGEST_MS: Millis = 1_800_000

/** Limit for the number of findings to consider. The smallest violations come first. */
const MAX_FINDINGS = 100

/** Minimum limit of the gate on the error ratio. The gate only prevents harm, and the hypothesis has the objective. */
const LEAST_LIMIT = 0.05

/** A refusal because a fault cannot act at the targets, whatever else happens there. */
const ABOUT_FAULTS = /^faults[[:]/

export interface Findings {
  /** Suggestions from findings of searches, the smallest violation first. */
  readonly suggestions: readonly Suggestion[]
  /** Number of findings that no experiment on an unprotected server of this gateway can reproduce. */
  readonly unfit: number
}

/**
 * Returns findings of the reports in the folder of plans. Omits a finding if a completed run of the last 90 days
 * injected all fault types of the finding at the server. The smallest violations come first, because nobody notices
 * small violations in production. `only`: a server; default: all servers.
 */
export async function findingsIn(operations: Operations, only: string | undefined): Promise<Findings> {
  const proven = provenRuns(operations)
  let unfit = 0
  const suggestions: Suggestion[] = []
  const all = (await operations.plans.reports())
    .flatMap((report) => report.findings.map((finding) => ({ finding, report })))
    .sort((a, b) => a.finding.excess - b.finding.excess)
  for (const { finding, report } of all.slice(0, MAX_FINDINGS)) {
    const servers = serversFor(finding, report, operations)
    const asked = only === undefined ? servers : servers.filter((name) => name === only)
    if (servers.length > 0 && asked.length === 0) continue
    const suggestion = asked
      .map((server) => suggestionOf(finding, report, server, operations))
      .find((one) => one !== undefined)
    if (suggestion === undefined) {
      unfit++
      continue
    }
    const { server } = suggestion
    const isProven = proven.some(
      (run) => run.servers.includes(server) && finding.faults.every(({ type }) => run.faults.includes(type)),
    )
    if (!isProven) suggestions.push(suggestion)
  }
  return { suggestions, unfit }
}

/** Returns the unprotected servers of this gateway that all faults of a finding can hit, the busiest first. */
function serversFor(
  { faults }: ReportedFinding,
  report: SearchReport,
  { live, traffic }: Operations,
): readonly string[] {
  const named = new Set(faults.flatMap(({ match }) => match?.server ?? []))
  if (named.size > 1) return []
  const paceOf = (name: string) => traffic.of((server) => server === name)?.perMinute ?? 0
  return [...live.current.servers.values()]
    .filter((server) => {
      const isMeant = named.size === 0 ? report.servers.includes(server.name) : named.has(server.name)
      if (!isMeant || server.protected) return false
      const tools = server.entries('tools').map(({ key }) => key)
      return faults.every(({ match }) => match?.tool === undefined || tools.includes(match.tool))
    })
    .map(({ name }) => name)
    .sort((a, b) => paceOf(b) - paceOf(a))
}

/** Returns a suggestion with a spec. Undefined: no valid spec can contain the faults, or the faults cannot act there. */
function suggestionOf(
  finding: ReportedFinding,
  { limit, policies, set, seed, servers }: SearchReport,
  server: string,
  { live, traffic, guarded, spec: schema }: Operations,
): Suggestion | undefined {
  const { faults, runs, inShort, violation } = finding
  const aimed = faults.map(({ match, when = {}, ttl, maxConcurrent, ...rest }) => ({
    ...rest,
    name: rest.type,
    ...(match?.tool !== undefined && { match: { tool: match.tool } }),
    // The stage replaces the time window.
    ...(when.burst !== undefined && { when: { burst: when.burst } }),
  }))
  const hitsPerMs = faults.reduce((sum, { match, rate }) => {
    const isMeant = (name: string, tool: string) => name === server && tool === (match?.tool ?? tool)
    return sum + ((traffic.of(isMeant)?.perMinute ?? 0) * rate * SHARE) / 60_000
  }, 0)
  const wantedMs = hitsPerMs === 0 ? 0 : Math.ceil(HITS / hitsPerMs / 60_000) * 60_000
  const duration = Math.min(LONGEST_MS, Math.max(60_000, wantedMs))
  const { metric, most } = limit
  const claim =
    metric === 'p95' ? `p95 <= ${most}ms` : `error_ratio <= ${Number((most * 100).toPrecision(6))}%`
  const above = metric === 'p95' ? LEAST_LIMIT : Math.min(0.9, Math.max(LEAST_LIMIT, 2 * most))
  const spec = {
    // A name has at most 40 characters, and each finding of a server needs a unique name.
    name: `${server.slice(0, 24)}-finding-${hashOf(aimed).slice(0, 6)}`,
    owner: 'control MCP server',
    reason: `Find out whether the faults that a search found in a simulation violate the objective at ${server}.`,
    hypothesis: { steadyState: [claim] },
    targets: { server },
    faults: aimed,
    stages: [{ share: SHARE, duration }],
    gate: { rollbackOn: [{ metric: 'error_ratio', above, for: '10s' }] },
  }
  const read = schema.safeParse(spec)
  if (!read.success) return undefined
  const request = { by: 'suggestion', approvedBy: undefined, firstStage: 0 }
  // Refusals for other reasons, such as an active run, pass.
  if (guarded.plan(read.data, request).refusals.some((why) => ABOUT_FAULTS.test(why))) return undefined
  const isEverywhere = servers.length > 1 && faults.some(({ match }) => match === undefined)
  const asSimulated = configHash(policiesOf(live.current.config)) === policies && set === 'none'
  const reason = [
    `a simulation found ${inShort}: ${violation}; ${numbered(runs, 'run')}, seed ${seed}`,
    ...(asSimulated ? [] : ['simulated under other policies than the default set here']),
    ...(isEverywhere ? [`simulated at ${numbered(servers.length, 'server')}, and the spec hits one`] : []),
    ...(faults.some(({ when }) => when?.window !== undefined)
      ? ['the simulation limited the faults to a time window; the spec injects during the whole stage']
      : []),
    hitsPerMs === 0
      ? 'no recent traffic'
      : `about ${numbered(Math.round(hitsPerMs * duration), 'hit')} in the stage`,
  ].join('; ')
  return {
    kind: 'finding',
    server,
    family: [...new Set(faults.map(({ type }) => types[type]?.family ?? type))].join('+'),
    reason: reason.slice(0, 1_000),
    n: runs,
    containedBy: finding.containedBy.slice(0, 3).map(quoted),
    spec,
  }
}
