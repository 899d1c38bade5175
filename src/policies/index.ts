import { attemptTimeout } from './attempt-timeout.ts'

/** Every resilience policy, by its name in the config: the one line that a new policy adds. */
export const policies = {
  attemptTimeout,
}
