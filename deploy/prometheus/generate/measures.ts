/** Labels that a measure is told apart by, and what Prometheus calls such a level in a rule's name. */
export interface Level {
  readonly name: 'server_tool' | 'server' | 'arm'
  readonly by: string
}

export const levels: readonly Level[] = [
  { name: 'server_tool', by: 'server, tool' },
  { name: 'server', by: 'server' },
]

/** Windows of burn rates; what is longer than `LONGEST_RAW` is added up from rates of 5 minutes. */
export const windows = ['5m', '30m', '1h', '2h', '6h', '24h', '3d'] as const

export type Window = (typeof windows)[number]

const ATTEMPTS = 'breakwater_upstream_attempts_total'

/**
 * What an attempt counts as, as matchers. The caller's own errors and cancellations say nothing about a tool;
 * rejections of the gateway are no attempts. Only a reply that was checked and found right is good. One that nobody could
 * check, or whose shape merely is a new one, is undecided: it is not good, and it is not held against the tool either.
 */
export const attempts = {
  eligible: 'outcome!~"caller_error|cancelled"',
  returned: 'outcome="returned"',
  good: 'outcome="returned",verdict="correct"',
  undecided: 'outcome="returned",verdict=~"unchecked|drift"',
  bad: 'outcome!~"caller_error|cancelled",verdict!~"correct|unchecked|drift"',
} as const

export type Share = keyof typeof attempts

/** Attempts per second that count as `share`. */
export function attemptRate(share: Share, { by }: Level, window: Window): string {
  return `sum by (${by}) (rate(${ATTEMPTS}{${attempts[share]}}[${window}]))`
}

/** The name of the rule that records `attemptRate` over 5 minutes. */
export const recordedRate = (share: Share, { name }: Level) => `${name}:breakwater_attempts_${share}:rate5m`

/**
 * `part / whole`, where nothing is divided by nothing. A tool without a single good result has no series of good
 * results: without the zero its ratio would be empty instead of 0, and no alert would ever fire.
 */
export function ratio(part: string, whole: string): string {
  return `(${part} or 0 * ${whole}) / (${whole} > 0)`
}
