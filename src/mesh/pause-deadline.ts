import type { Answer, CallRecord, Holding } from './call.ts'
import type { Clock, Millis } from './clock.ts'

/** Adds a resource that the call holds until `letGo`. An abandoned call lends the resource at once. */
export function hold(record: CallRecord, holding: Holding): void {
  holding.outer = record.holding
  record.holding = holding
  if (record.isAbandoned) holding.lend()
}

export function letGo(record: CallRecord, holding: Holding): void {
  if (record.holding === holding) {
    record.holding = holding.outer
    return
  }
  for (let inner = record.holding; inner !== undefined; inner = inner.outer)
    if (inner.outer === holding) inner.outer = holding.outer
}

/** Marks a call that nobody waits for any more. The call may continue, but lends all its resources to other calls. */
export function abandon(record: CallRecord): void {
  record.isAbandoned = true
  lendAll(record)
}

function lendAll(record: CallRecord): void {
  for (let held = record.holding; held !== undefined; held = held.outer) held.lend()
}

/** The two ways in which a server's question to the agent can end. */
export interface ServerQuestion {
  readonly answer: Answer
  /**
   * Call when the server withdraws the question, so that no answer comes. Undefined outside of calls, where nothing is
   * paused.
   */
  readonly withdrawn?: () => void
}

/**
 * Pauses a call while its server asks the agent: deadlines and timeouts are paused, and the call lends its resources.
 * Returns the two ways to end the question; each of them resumes the call. The answer is sent after the call has its
 * resources back.
 */
export function pauseDeadline(
  record: CallRecord,
  clock: Pick<Clock, 'now'>,
  answer: Answer,
): Required<ServerQuestion> {
  if (record.asking++ === 0) {
    record.askingSince = clock.now()
    lendAll(record)
  }
  let open = true
  const end = (): Promise<void>[] => {
    const isLast = open && --record.asking === 0
    open = false
    if (!isLast) return []
    record.askedMs += clock.now() - record.askingSince
    const waits: Promise<void>[] = []
    for (let held = record.holding; held !== undefined; held = held.outer) {
      const wait = held.takeBack()
      if (wait !== undefined) waits.push(wait)
    }
    return waits
  }
  return {
    answer(text) {
      const waits = end()
      return waits.length === 0 ? answer(text) : Promise.all(waits).then(() => answer(text))
    },
    withdrawn: () => void end(),
  }
}

/** Most time that the questions of a call may extend its deadline, in milliseconds, because agents forget to answer. */
export const MOST_ASKED_MS = 600_000

/** Returns how long a call has waited for its agent's answers so far, in milliseconds; at most `MOST_ASKED_MS`. */
export function askedMs(record: CallRecord, now: Millis): Millis {
  const asked = record.askedMs + (record.asking > 0 ? now - record.askingSince : 0)
  return Math.min(asked, MOST_ASKED_MS)
}
