/**
 * The order of policies, outermost first: the one place where it is written. The deadline covers all
 * attempts; what one key has started is joined before anything is tried again; backoff holds no bulkhead slot;
 * nothing inside the breaker can reject; the breaker sees each attempt with its verdict. A name without a
 * registered policy is skipped.
 */
export const order = [
  'deadline',
  'arguments',
  'degrade',
  'idempotency',
  'retry',
  'hedge',
  'rateLimit',
  'bulkhead',
  'adaptiveConcurrency',
  'route',
  'breaker',
  'attemptTimeout',
  'verdict',
] as const

export type LayerName = (typeof order)[number]

/** Who wants to see each attempt with its verdict stands here: what a breaker rejects is no attempt. */
export const ATTEMPT_BEFORE: LayerName = 'attemptTimeout'
