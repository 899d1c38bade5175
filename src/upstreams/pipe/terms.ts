import type { Layer } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Era } from '../../protocol/modern.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Conceal } from '../server-words.ts'
import type { Audience } from '../shared/audience.ts'

/** What an upstream session is about. */
export interface Terms {
  /** The server's name in the registry. */
  readonly server: string
  /** The `initialize` params that the server is told. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly audience: Audience
  /** Whether callers share the upstream session; false unless given. */
  readonly shared?: boolean
  /** What the server speaks, `legacy` unless given; `auto` finds out. */
  readonly era?: Era | 'auto'
  readonly clock: Clock
  readonly log: Log
  /** Takes what is secret out of what the server says. */
  readonly conceal: Conceal
  /** Faults of the handshakes and pings that the upstream session needs for itself; none unless given. */
  readonly faults?: Layer | undefined
}
