import type { Quotas } from './quotas.ts'
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
  /** Replies that wait for clients which do not read them. */
  readonly unread: UnreadReplies
}
