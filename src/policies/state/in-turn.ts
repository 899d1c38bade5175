import type { Call } from '../../mesh/call.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'

/**
 * Makes an answer out of a kept answer of `length` bytes or characters. A large answer is read from end to end, so it
 * gets its own turn: many calls may use the same answer at the same time. Runs at once when the call's time is over,
 * since the answer would be late anyway.
 */
export function inTurn<T>(length: number, { caller, signal }: Call, make: () => T): T | Promise<T> {
  if (length < LARGE_TEXT || signal.aborted) return make()
  return ownTurn(caller).then(() => during('reply', make))
}
