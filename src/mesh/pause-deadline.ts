import type { Answer, CallRecord, Holding } from './call.ts'
import type { Clock, Millis } from './clock.ts'

/** A call holds something from now on, until `letGo`. */
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

/** Nobody waits for the call any more: it may go on, and holds nothing that others wait for. */
export function abandon(record: CallRecord): void {
  record.isAbandoned = true
  lendAll(record)
}

function lendAll(record: CallRecord): void {
  for (let held = record.holding; held !== undefined; held = held.outer) held.lend()
}

/** How a question of a server ends. */
export interface ServerQuestion {
  readonly answer: Answer
  /** The server has taken the question back: nobody answers it. Undefined outside of calls, where nothing stands still. */
  readonly withdrawn?: () => void
}

/**
 * A server asks the agent in the middle of a call: until the question has ended, no deadline and no timeout of the
 * call moves on, and the call holds nothing that others wait for. Both ends set them going again; an answer waits for
 * what the call needs to go on.
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

/** Longest time that the questions of one call may hold its deadline back, in milliseconds: agents forget to answer. */
export const MOST_ASKED_MS = 600_000

/** How long the agent has been asked in the course of a call so far, in milliseconds. */
export function askedMs(record: CallRecord, now: Millis): Millis {
  const asked = record.askedMs + (record.asking > 0 ? now - record.askingSince : 0)
  return Math.min(asked, MOST_ASKED_MS)
}
