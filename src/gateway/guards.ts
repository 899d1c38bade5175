import type { Config } from '../config/schema/schema.ts'
import type { Guards } from '../downstream/guards.ts'
import { quotaLimits, Quotas } from '../downstream/quotas.ts'
import { ReplayBudget } from '../downstream/replay.ts'
import { requestLimitNames, RequestLimits } from '../downstream/request-limits.ts'
import { gatewayErrorText } from '../downstream/respond.ts'
import { Tenancies } from '../downstream/tenancy.ts'
import { unreadCauses, UnreadReplies } from '../downstream/unread-replies.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { processLimits } from '../upstreams/stdio/children.ts'
import type { ServerGuards } from './http-server.ts'

interface GuardsParts {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly log: Log
}

/** Makes what keeps one agent from taking what is for all. It outlives generations. */
export function createGuards(gateway: Config['gateway'], { clock, metrics, log }: GuardsParts): Guards {
  const { limits, unread, sessions } = gateway
  // `rate` does not see the first event of a series that begins with it.
  metrics.replayDropped.cell()
  for (const limit of requestLimitNames) metrics.requestsRefused.cell({ limit })
  for (const cause of unreadCauses) metrics.unreadClosed.cell({ cause })
  for (const limit of [...quotaLimits, ...processLimits]) metrics.quotaRefused.cell({ limit })
  return {
    quotas: new Quotas(gateway, (limit) => metrics.quotaRefused.inc({ limit })),
    limits: new RequestLimits(clock, limits, (limit) => metrics.requestsRefused.inc({ limit })),
    defect(id, cause) {
      log.error({ err: cause }, 'a request met a defect of the gateway')
      return gatewayErrorText(id, gatewayError('internal', 'internal error'), {})
    },
    replay: new ReplayBudget(sessions.replayTotal, () => metrics.replayDropped.inc()),
    tenancies: new Tenancies(),
    unread: new UnreadReplies(clock, unread, (cause) => metrics.unreadClosed.inc({ cause })),
  }
}

/** Most connections of operators; one machine may have them all. */
const MAX_CONTROL_CONNECTIONS = 1_000

/** What bounds the connections of operators, which agents do not take from them. */
export function createControlGuards({ maxInFlight, unread }: Config['gateway'], clock: Clock): ServerGuards {
  const connections = MAX_CONTROL_CONNECTIONS
  const limits = { connections, perClient: { connections } }
  return {
    quotas: new Quotas({ maxInFlight, limits }, () => undefined),
    unread: new UnreadReplies(clock, unread, () => undefined),
  }
}
