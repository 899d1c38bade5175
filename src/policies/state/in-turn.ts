import type { Call } from '../../mesh/call.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'

/**
 * Runs `make`, which builds an answer from a stored answer of `length` bytes or characters, and returns the result. A
 * large answer is read from end to end in its own event-loop turn, because many calls may use it at once. Runs at once
 * when the call's time is over, since the answer would be late anyway.
 */
export function inTurn<T>(length: number, { caller, signal }: Call, make: () => T): T | Promise<T> {
  if (length < LARGE_TEXT || signal.aborted) return make()
  return ownTurn(caller).then(() => during('reply', make))
}
