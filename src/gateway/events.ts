import { EventEmitter } from 'node:events'
import type { ListKind } from '../protocol/lists.ts'
import type { Probe } from '../registry/health/probe.ts'
import type { ProbeResult } from '../registry/health/server-health.ts'
import type { KnownServer } from '../registry/known-server.ts'
import type { Server } from '../registry/server.ts'

/** Events from parts of the gateway to parts created later, each with its arguments. */
interface GatewayEventMap {
  /** A server's lists have changed; `changed` names these lists. */
  catalogChanged: [server: KnownServer, changed: readonly ListKind[]]
  /**
   * The gateway must drop its cached lists of a server. `changed` has the lists that changed for agents, and may be
   * empty.
   */
  listsChanged: [server: KnownServer, changed: readonly ListKind[]]
  serverState: [server: KnownServer]
  probed: [server: Server, probe: Probe, result: ProbeResult]
  /** A sign of trouble from a policy, such as `breaker memory/read_graph open`. */
  sign: [server: string, sign: string]
  /**
   * Arms or dynamic servers have changed. The listener recompiles the config, and throws when the config does not
   * compile.
   */
  refreshWanted: []
}

export type GatewayEvents = EventEmitter<GatewayEventMap>

/** Returns the event bus of a gateway. `emit` is synchronous, and rethrows a listener's error. */
export const createEvents = (): GatewayEvents => new EventEmitter()
