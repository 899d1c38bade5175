/** Queries that find nothing in this check, by who shows them, and why. */
export const silent: readonly (readonly [pattern: RegExp, why: string])[] = [
  [
    /^breakwater-gateway \/ Spans and recorded calls that were lost \/ A/,
    'the collector of this check takes all spans',
  ],
  [/^breakwater-resilience \/ Lost sessions/, 'the server of this check has no sessions to lose'],
  [/^breakwater-resilience \/ Notifications that servers/, 'the agents of this check send none'],
]
