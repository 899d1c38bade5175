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
 * Every resilience policy, by its name in the config; a new policy adds one line here. The order of the lines is the
 * order of the policies, outermost first. The deadline covers all attempts. Calls with the same key are joined before
 * any retry. Backoff holds no bulkhead slot. No policy below the breaker may reject, because the breaker would count
 * the rejection as an attempt. The breaker sees each attempt with its verdict.
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
