import type { Answer, CallRecord } from './call.ts'
import type { Clock, Millis } from './clock.ts'

/**
 * A server asks the agent in the middle of a call: until the answer has come, no deadline and no timeout of the
 * call moves on. Returns the way of the answer, which sets them going again.
 */
export function asking(record: CallRecord, clock: Pick<Clock, 'now'>, answer: Answer): Answer {
  if (record.asking++ === 0) record.askingSince = clock.now()
  let open = true
  return (text) => {
    if (open && --record.asking === 0) record.askedMs += clock.now() - record.askingSince
    open = false
    return answer(text)
  }
}

/** Longest time that the questions of one call may hold its deadline back, in milliseconds: agents forget to answer. */
export const MOST_ASKED_MS = 600_000

/** How long the agent has been asked in the course of a call so far, in milliseconds. */
export function askedMs(record: CallRecord, now: Millis): Millis {
  const asked = record.askedMs + (record.asking > 0 ? now - record.askingSince : 0)
  return Math.min(asked, MOST_ASKED_MS)
}
