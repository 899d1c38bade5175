import type { Guards } from '../../src/downstream/guards.ts'
import { UnreadReplies } from '../../src/downstream/unread-replies.ts'
import type { Clock } from '../../src/mesh/clock.ts'

const MIB = 1024 ** 2

/** Guards with the defaults of a gateway. */
export function testGuards(clock: Clock): Guards {
  const limits = { total: 64 * MIB, perClient: 16 * MIB, stalled: 30_000 }
  return { unread: new UnreadReplies(clock, limits, () => undefined) }
}
