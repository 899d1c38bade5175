import type { RequestId } from '../mesh/call.ts'
import type { Quotas } from './quotas.ts'
import type { ReplayBudget } from './replay.ts'
import type { RequestLimits } from './request-limits.ts'
import type { Tenancies } from './tenancy.ts'
import type { UnreadReplies } from './unread-replies.ts'

/** What keeps one agent from taking what is for all. */
export interface Guards {
  /** How fast requests may come. */
  readonly limits: RequestLimits
  /** What one client may have of what is for all. */
  readonly quotas: Quotas
  /** Whom requests count as. */
  readonly tenancies: Tenancies
  /** Told of a request that met a defect of the gateway; gives the text of the error that answers it. */
  readonly defect: (id: RequestId, cause: unknown) => string
  /** Replies that wait for clients which do not read them. */
  readonly unread: UnreadReplies
  /** What is kept of events for clients that come back, of all sessions together. */
  readonly replay: ReplayBudget
}
