import type { Caller } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Discover } from './discover.ts'
import { whenAborted } from '../failure.ts'
import type { MessageLink } from '../pipe/message-link.ts'
import { ModernLink } from './modern-link.ts'
import { pipeWay } from './pipe-way.ts'
import type { ToolFacts } from './tool-facts.ts'

export interface SeatTerms {
  /** The server's name in the registry. */
  readonly server: string
  readonly clock: Clock
  readonly tools: ToolFacts
}

/** One caller's part in what goes over a pipe to a server of the modern era. It ends with the pipe. */
export function modernSeat(
  link: MessageLink,
  discover: Discover,
  terms: SeatTerms,
  caller: Caller,
): ModernLink {
  const way = pipeWay(link, terms.server, caller)
  const seat = new ModernLink({ ...terms, discover, way }, caller, link.greeting)
  whenAborted(link.ended, (error) => seat.end(error))
  return seat
}
