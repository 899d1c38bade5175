import { adaptiveConcurrency } from './adaptive-concurrency.ts'
import { argumentsPolicy } from './arguments.ts'
import { attemptTimeout } from './attempt-timeout.ts'
import { breaker } from './breaker.ts'
import { bulkhead } from './bulkhead.ts'
import { deadline } from './deadline.ts'
import { degrade } from './degrade.ts'
import { gate } from './gate.ts'
import { hedge } from './hedge.ts'
import { idempotency } from './idempotency.ts'
import { overdue } from './overdue.ts'
import { rateLimit } from './rate-limit.ts'
import { retry } from './retry.ts'
import { route } from './route.ts'
import { verdict } from './verdict.ts'

/**
 * Every resilience policy, by its name in the config: the one line that a new policy adds. The order of the lines is the order of the
 * policies, outermost first: the deadline covers all attempts; what one key has started is joined before anything is tried again;
 * backoff holds no bulkhead slot; no policy below the breaker may reject: the breaker would take that for an
 * attempt; the breaker sees each attempt with its verdict.
 */
export const policies = {
  deadline,
  arguments: argumentsPolicy,
  degrade,
  idempotency,
  retry,
  gate,
  overdue,
  hedge,
  rateLimit,
  bulkhead,
  adaptiveConcurrency,
  route,
  breaker,
  attemptTimeout,
  verdict,
}
