/** Queries without results in this check, by panel or rule, with the reason. */
export const silent: readonly (readonly [pattern: RegExp, why: string])[] = [
  [
    /^breakwater-gateway \/ Spans and recorded calls that were lost \/ A/,
    'the collector of this check takes all spans',
  ],
  [/^breakwater-resilience \/ Lost sessions/, 'the server of this check has no sessions to lose'],
  [
    /^breakwater-resilience \/ Lost notifications and withheld requests/,
    'the agents of this check send no notifications, and open no tasks',
  ],
  [/^IdempotencyKeysUsedUp: /, 'no agent of this check uses up its keys'],
]
