import type { Call } from '../../mesh/call.ts'
import { ownTurn } from '../../mesh/turns.ts'
import { during, LARGE_TEXT } from '../../mesh/work.ts'

/**
 * Makes an answer out of one that was kept, of so many bytes or characters: of a large one, which is read from end to end, in a turn of
 * its own. Many calls are answered out of the same one at the same time. At once where the time of the call is over: it would come too late.
 */
export function inTurn<T>(length: number, { caller, signal }: Call, make: () => T): T | Promise<T> {
  if (length < LARGE_TEXT || signal.aborted) return make()
  return ownTurn(caller).then(() => during('reply', make))
}
