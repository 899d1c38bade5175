import { type Guards, RequestLimits, type RequestRates } from '../../src/downstream/limits/limits.ts'
import { KeepAlive } from '../../src/downstream/keep-alive.ts'
import { Quotas } from '../../src/downstream/limits/quotas.ts'
import { ReplayBudget } from '../../src/downstream/http/event-stream.ts'
import { Tarpit } from '../../src/downstream/limits/tarpit.ts'
import { Tenancies } from '../../src/access/caller.ts'
import { UnreadReplies } from '../../src/downstream/http/unread-replies.ts'
import { defaultLimits } from '../support/default-limits.ts'
import { errorText } from '../../src/protocol/jsonrpc.ts'
import type { Clock } from '../../src/mesh/clock.ts'

/** Returns guards with a gateway's defaults and these rates. */
export function testGuards(clock: Clock, rates: RequestRates = {}): Guards {
  const { shares, unread, replay } = defaultLimits
  const quotas = new Quotas(shares, () => undefined)
  return {
    defect: (id) => errorText(id, 1500, 'internal error'),
    replay: new ReplayBudget(replay, () => undefined),
    quotas,
    limits: new RequestLimits(clock, rates, () => undefined),
    tarpit: new Tarpit(clock, 1_000, quotas.calls, () => undefined),
    tenancies: new Tenancies(),
    unread: new UnreadReplies(clock, unread, () => undefined),
    keepAlive: new KeepAlive(clock),
  }
}
