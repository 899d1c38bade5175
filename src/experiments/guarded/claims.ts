import type { Millis } from '../../mesh/clock.ts'
import { duration, roundedDuration } from '../../units/duration.ts'
import { suggest } from '../../units/suggest.ts'
import type { Figures } from './meter.ts'

/** The subjects of claims and gates, and the unit of their numbers: `share` is in [0, 1], `ms` in milliseconds. */
export const subjects = {
  p50: { unit: 'ms', of: 'calls' },
  p90: { unit: 'ms', of: 'calls' },
  p95: { unit: 'ms', of: 'calls' },
  p99: { unit: 'ms', of: 'calls' },
  mean: { unit: 'ms', of: 'calls' },
  error_ratio: { unit: 'share', of: 'calls' },
  rejected_ratio: { unit: 'share', of: 'calls' },
  attempts_per_call: { unit: 'count', of: 'calls' },
  uptime: { unit: 'ms', of: 'servers' },
  status: { unit: 'state', of: 'servers' },
  /** In a row, up to the latest one. */
  probe_failures: { unit: 'count', of: 'servers' },
} as const

export type Subject = keyof typeof subjects

/** The subjects about calls: only these can be measured by arm. */
export type CallMetric = Exclude<Subject, 'uptime' | 'status' | 'probe_failures'>

export const callMetrics = (Object.keys(subjects) as Subject[]).filter(
  (name): name is CallMetric => subjects[name].of === 'calls',
)

export type Unit = (typeof subjects)[Subject]['unit']

/** Something that can be measured and is true or not, such as `p95 < 500ms`. */
export interface Claim {
  /** As somebody wrote it. */
  readonly text: string
  readonly subject: Subject
  readonly operator: '<=' | '>=' | '<' | '>' | '='
  /** In the unit of its subject; of `status` 1 for up and 0 for down. */
  readonly value: number
}

/** A server, as claims see it. */
export interface ServerVital {
  readonly name: string
  readonly isUp: boolean
  /** For how long, in milliseconds; 0 when it is not up. */
  readonly uptimeMs: Millis
  /** Probes in a row that were not well; undefined where it has not been probed. */
  readonly probeFailures: number | undefined
}

/** A claim that was held against what was measured. */
export interface Judged {
  readonly claim: string
  /** As people read it; `no calls` or `no probes` where there was nothing to measure. */
  readonly found: string
  /** Undefined where nothing was measured. */
  readonly holds: boolean | undefined
}

const claimPattern = /^([a-z0-9_]+)\s*(<=|>=|<|>|=)\s*(\S+)$/

/** Reads a claim; or says what is wrong with it. */
export function parseClaim(text: string): Claim | { readonly problem: string } {
  const [, subject = '', operator, written = ''] = claimPattern.exec(text.trim()) ?? []
  if (operator === undefined) return { problem: 'expected a claim such as "p95 < 500ms" or "status = up"' }
  if (!isSubject(subject)) {
    const names = Object.keys(subjects)
    const meant = suggest(subject, names)
    return {
      problem: `there is no "${subject}"; ${meant === undefined ? `there are ${names.join(', ')}` : `did you mean "${meant}"?`}`,
    }
  }
  const value = numberIn(subjects[subject].unit, written)
  if (value === undefined)
    return { problem: `"${written}" is no value of ${subject}: expected ${examples[subjects[subject].unit]}` }
  return { text: text.trim(), subject, operator: operator as Claim['operator'], value }
}

const isSubject = (name: string): name is Subject => Object.hasOwn(subjects, name)

/** An example of a value for each unit, for messages. */
export const examples: Readonly<Record<Unit, string>> = {
  ms: 'a duration such as 500ms or 2s',
  share: 'a share such as 1% or 0.01',
  count: 'a number such as 1.5',
  state: 'up or down',
}

/** A value as it is written in a claim or a gate; undefined when it is none. */
export function numberIn(unit: Unit, written: string | number): number | undefined {
  if (unit === 'state') return written === 'up' ? 1 : written === 'down' ? 0 : undefined
  const text = String(written).trim()
  if (unit === 'ms') {
    const plain = decimal(text)
    if (plain !== undefined) return plain
    const read = duration().safeParse(text)
    return read.success ? read.data : undefined
  }
  const isPercent = text.endsWith('%')
  if (isPercent && unit !== 'share') return undefined
  const value = decimal(isPercent ? text.slice(0, -1) : text)
  if (value === undefined) return undefined
  const share = isPercent ? value / 100 : value
  return unit === 'share' && share > 1 ? undefined : share
}

/** Largest number that is believed to be meant. */
const MOST = 1e9

function decimal(text: string): number | undefined {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : NaN
  return value <= MOST ? value : undefined
}

/** A value as people read it. */
export function valueInWords(unit: Unit, value: number): string {
  switch (unit) {
    case 'ms':
      return value < 0 ? `-${roundedDuration(-value)}` : roundedDuration(value)
    case 'share':
      return `${percentOf(value)}%`
    case 'count':
      return String(Number(value.toPrecision(3)))
    case 'state':
      return value === 1 ? 'up' : 'down'
  }
}

/** With three digits, and with more where a share below the whole would look like the whole. */
function percentOf(share: number): number {
  const rounded = Number((share * 100).toPrecision(3))
  return rounded === 100 && share < 1 ? Math.floor(share * 1e7) / 1e5 : rounded
}

/** Returns the value of a metric over the calls; undefined when there is nothing to measure it by. */
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

/** Holds claims against what was measured of calls and of the servers that they went to. */
export function judge(
  claims: readonly Claim[],
  figures: Figures,
  servers: readonly ServerVital[],
): readonly Judged[] {
  return claims.map((claim) => {
    const { subject, text } = claim
    const { unit } = subjects[subject]
    const value = valueOf(subject, figures, servers)
    if (value === undefined) return { claim: text, found: nothing(subject), holds: undefined }
    return { claim: text, found: valueInWords(unit, value), holds: holds(claim, value) }
  })
}

const nothing = (subject: Subject) => (subject === 'probe_failures' ? 'no probes' : 'no calls')

/** Returns the value of a subject, for several servers the worst one; undefined when there is nothing to measure it by. */
function valueOf(subject: Subject, figures: Figures, servers: readonly ServerVital[]): number | undefined {
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

function holds({ operator, value }: Claim, found: number): boolean {
  switch (operator) {
    case '<':
      return found < value
    case '<=':
      return found <= value
    case '>':
      return found > value
    case '>=':
      return found >= value
    case '=':
      return found === value
  }
}

/** Whether all of them hold; undefined when some could not be measured, and no other failed. */
export function allHold(judged: readonly Judged[]): boolean | undefined {
  if (judged.some(({ holds }) => holds === false)) return false
  return judged.some(({ holds }) => holds === undefined) ? undefined : true
}

/** The claims that do not hold, in words. */
export const failuresIn = (judged: readonly Judged[]): string =>
  judged
    .filter(({ holds }) => holds !== true)
    .map(({ claim, found }) => `${claim} (found ${found})`)
    .join(', ')
