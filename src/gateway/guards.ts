import { limitsOf } from '../config/limits.ts'
import type { GatewayConfig } from '../config/schema/schema.ts'
import { ReplayBudget } from '../downstream/http/event-stream.ts'
import { unreadCauses, UnreadReplies } from '../downstream/http/unread-replies.ts'
import { KeepAlive } from '../downstream/keep-alive.ts'
import { type Guards, requestLimitNames, RequestLimits } from '../downstream/limits/limits.ts'
import { quotaLimits, Quotas } from '../downstream/limits/quotas.ts'
import { Tarpit } from '../downstream/limits/tarpit.ts'
import { Tenancies } from '../access/caller.ts'
import { gatewayErrorText } from '../downstream/respond.ts'
import type { Clock } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { processLimits } from '../upstreams/stdio/children.ts'

interface GuardsParts {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly log: Log
}

/** Creates the per-agent limits on shared resources. All generations share the limits. */
export function createGuards(gateway: GatewayConfig, { clock, metrics, log }: GuardsParts): Guards {
  const { limits } = gateway
  const { shares, unread, replay } = limitsOf(gateway)
  metrics.rejectionsHeld.series()
  // Creates the series at 0, because `rate` of Prometheus misses the first increase of a new series.
  metrics.replayDropped.series()
  for (const limit of requestLimitNames) metrics.requestsRefused.series({ limit })
  for (const cause of unreadCauses) metrics.unreadClosed.series({ cause })
  for (const limit of [...quotaLimits, ...processLimits]) metrics.quotaRefused.series({ limit })
  const quotas = new Quotas(shares, (limit) => metrics.quotaRefused.inc({ limit }))
  return {
    quotas,
    limits: new RequestLimits(clock, limits, (limit) => metrics.requestsRefused.inc({ limit })),
    tarpit: new Tarpit(clock, limits.rejectionPause, quotas.calls, () => metrics.rejectionsHeld.inc()),
    defect(id, cause) {
      log.error({ err: cause }, 'internal error while handling a request (a bug in Breakwater)')
      return gatewayErrorText(id, gatewayError('internal', 'internal error'), {})
    },
    replay: new ReplayBudget(replay, () => metrics.replayDropped.inc()),
    tenancies: new Tenancies(),
    unread: new UnreadReplies(clock, unread, (cause) => metrics.unreadClosed.inc({ cause })),
    keepAlive: new KeepAlive(clock),
  }
}

/** Most operator connections; a single client may hold all of these connections. */
const MAX_CONTROL_CONNECTIONS = 1_000

/** Creates the limits on operator connections; agents use none of these connections. */
export function createControlGuards(gateway: GatewayConfig, clock: Clock) {
  const { shares, unread } = limitsOf(gateway)
  const connections = { max: MAX_CONTROL_CONNECTIONS, perClient: MAX_CONTROL_CONNECTIONS }
  return {
    quotas: new Quotas({ ...shares, connections }, () => undefined),
    unread: new UnreadReplies(clock, unread, () => undefined),
  }
}
