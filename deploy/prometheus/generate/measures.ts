import { wrongVerdicts } from '../../../src/mesh/classify.ts'

/** Labels that separate a measure's series, and the level's name in Prometheus rule names. */
export interface Level {
  readonly name: 'server_tool' | 'server' | 'arm'
  readonly by: string
}

export const levels: readonly Level[] = [
  { name: 'server_tool', by: 'server, tool' },
  { name: 'server', by: 'server' },
]

/** Windows of burn rates; windows longer than `LONGEST_RAW` average rates of 5 minutes. */
export const windows = ['5m', '30m', '1h', '2h', '6h', '24h', '3d'] as const

export type Window = (typeof windows)[number]

const ATTEMPTS = 'breakwater_upstream_attempts_total'

/** Matchers of replies. Replies are good unless known to be wrong; `unchecked` are good replies without a check. */
export const replies = {
  returned: 'outcome="returned"',
  good: `outcome="returned",verdict!~"${[...wrongVerdicts].join('|')}"`,
  unchecked: 'outcome="returned",verdict="unchecked"',
} as const

/** Matchers of attempts. Callers' own errors and cancellations say nothing about a tool; rejections are no attempts. */
const attempts = { eligible: 'outcome!~"caller_error|cancelled"', ...replies } as const

export type Share = keyof typeof attempts

/** Attempts per second that count as `share`. */
export function attemptRate(share: Share, { by }: Level, window: Window): string {
  return `sum by (${by}) (rate(${ATTEMPTS}{${attempts[share]}}[${window}]))`
}

/** The name of the rule that records `attemptRate` over 5 minutes. */
export const recordedRate = (share: Share, { name }: Level) => `${name}:breakwater_attempts_${share}:rate5m`

/**
 * `part / whole`, without a sample if the whole is 0. A tool that never had a good result has no series of good
 * results: without the added zero its ratio would be empty instead of 0, and no alert would ever fire.
 */
export function ratio(part: string, whole: string): string {
  return `(${part} or 0 * ${whole}) / (${whole} > 0)`
}
