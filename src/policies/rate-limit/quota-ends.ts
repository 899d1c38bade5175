import type { Outcome } from '../../mesh/call.ts'
import type { Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { formatDuration } from '../../units/duration.ts'
import type { Quota } from './quota.ts'

/** Rejects a call that found no place to wait. */
export function queueFull(quota: Quota, waitMs: Millis): Outcome {
  const { waiting, settings } = quota
  return reject(quota, `is used up (${waiting} of ${settings.queue} waiting)`, waitMs)
}

/** Rejects a call that could not go before its deadline or the longest wait. */
export function tooLong(quota: Quota, waitMs: Millis): Outcome {
  return reject(quota, `is used up for ${Math.ceil(waitMs)} ms`, waitMs)
}

/** Rejects a call whose turn did not come. */
export function waitedInVain(quota: Quota, waitMs: Millis): Outcome {
  return reject(quota, `is used up (waited ${quota.settings.maxWait} ms)`, waitMs)
}

function reject({ server, settings }: Quota, what: string, waitMs: Millis): Outcome {
  const quota = `quota of ${settings.calls} calls in ${formatDuration(settings.per)} for ${server}`
  const error = gatewayError('rate_limited', `${quota} ${what}`, {
    retryAfterMs: Math.max(1, Math.ceil(waitMs)),
  })
  return { kind: 'rejected', error, by: 'rateLimit' }
}
