import type { Clock } from '../../mesh/clock.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Audience } from '../shared/audience.ts'
import type { Era } from '../upstream.ts'

/** What a conversation is about. */
export interface Terms {
  /** The server's name in the registry. */
  readonly server: string
  /** The `initialize` params that the server is told. */
  readonly hello: Readonly<Record<string, unknown>>
  readonly audience: Audience
  /** Whether callers share the conversation; false unless given. */
  readonly shared?: boolean
  /** What the server speaks, `legacy` unless given; `auto` finds out. */
  readonly era?: Era | 'auto'
  readonly clock: Clock
  readonly log: Log
}
