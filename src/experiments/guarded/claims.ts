import { judge, valueInWords } from '../../claims/judge.ts'
import type { Claim } from '../../claims/claim.ts'
import { subjects } from '../../claims/subjects.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Figures } from './meter.ts'

/** Subjects about calls, the only subjects measured by arm. */
export const callMetrics = [
  'p50',
  'p90',
  'p95',
  'p99',
  'mean',
  'error_ratio',
  'rejected_ratio',
  'attempts_per_call',
] as const

export type CallMetric = (typeof callMetrics)[number]

export const measurable = [...callMetrics, 'uptime', 'status', 'probe_failures'] as const

export type Measurable = (typeof measurable)[number]

/** The facts about a server that claims can be about. */
export interface ServerVital {
  readonly name: string
  readonly isUp: boolean
  /** Uptime in milliseconds; 0 while the server is down. */
  readonly uptimeMs: Millis
  /** Failed probes in a row; undefined for a server without probes. */
  readonly probeFailures: number | undefined
}

export interface Judged {
  readonly claim: string
  /** The found value as text; `no calls` or `no probes` without measurements. */
  readonly found: string
  /** True when the claim holds; undefined without measurements. */
  readonly holds: boolean | undefined
}

/** Returns the value of a metric; undefined without measurements. */
export function metricIn(metric: CallMetric, figures: Figures): number | undefined {
  const { calls, failed, rejected, attempts } = figures
  if (calls === 0 && subjects[metric].unit !== 'ms') return undefined
  switch (metric) {
    case 'error_ratio':
      return failed / calls
    case 'rejected_ratio':
      return rejected / calls
    case 'attempts_per_call':
      return attempts / calls
    default:
      return figures[metric]
  }
}

export const judgeRun = (
  claims: readonly Claim<Measurable>[],
  figures: Figures,
  servers: readonly ServerVital[],
): readonly Judged[] =>
  claims.map((claim) => {
    const { subject, text } = claim
    const value = valueOf(subject, figures, servers)
    const nothing = subject === 'probe_failures' ? 'no probes' : 'no calls'
    const found = value === undefined ? nothing : valueInWords(subjects[subject].unit, value)
    return { claim: text, found, holds: judge([claim], value) }
  })

/** Returns the value of a subject, for several servers the worst; undefined without measurements. */
function valueOf(subject: Measurable, figures: Figures, servers: readonly ServerVital[]): number | undefined {
  switch (subject) {
    case 'uptime':
      return servers.length === 0 ? undefined : Math.min(...servers.map(({ uptimeMs }) => uptimeMs))
    case 'status':
      return servers.length === 0 ? undefined : servers.every(({ isUp }) => isUp) ? 1 : 0
    case 'probe_failures': {
      const known = servers.flatMap(({ probeFailures }) => probeFailures ?? [])
      return known.length === servers.length && known.length > 0 ? Math.max(...known) : undefined
    }
    default:
      return metricIn(subject, figures)
  }
}

/** Returns the claims that do not hold, or were not measured, in words. */
export const failuresIn = (judged: readonly Judged[]): string =>
  judged
    .filter(({ holds }) => holds !== true)
    .map(({ claim, found }) => `${claim} (found ${found})`)
    .join(', ')
