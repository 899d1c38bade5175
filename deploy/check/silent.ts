/** Queries that find nothing in this check, by who shows them, and why. */
export const silent: readonly (readonly [pattern: RegExp, why: string])[] = [
  [/^breakwater-gateway \/ Spans that were lost/, 'this check has no traces, so none are lost'],
  [/^breakwater-resilience \/ Lost sessions/, 'the server of this check has no sessions to lose'],
]
