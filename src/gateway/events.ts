import { EventEmitter } from 'node:events'
import type { ListKind } from '../protocol/lists.ts'
import type { Probe } from '../registry/health/probe.ts'
import type { ProbeResult } from '../registry/health/server-health.ts'
import type { KnownServer } from '../registry/known-server.ts'
import type { Server } from '../registry/server.ts'

/** Events by which parts of the gateway reach parts that are made later, each with its arguments. */
interface GatewayEventMap {
  /** A server offers other entries in the lists of `changed`. */
  catalogChanged: [server: KnownServer, changed: readonly ListKind[]]
  /** The gateway's copies of a server's lists are void. Agents see other entries in the lists of `changed`, which may be empty. */
  listsChanged: [server: KnownServer, changed: readonly ListKind[]]
  /** A server came up, or went down. */
  serverState: [server: KnownServer]
  /** A health check ended. */
  probed: [server: Server, probe: Probe, result: ProbeResult]
  /** A policy acted, such as `breaker memory/read_graph open`. */
  sign: [server: string, sign: string]
  /** Arms, or servers outside the config file, changed: compile the config again. The listener throws when the config does not compile. */
  refreshWanted: []
}

export type GatewayEvents = EventEmitter<GatewayEventMap>

/** Returns the event bus of one gateway. `emit` calls all listeners before it returns, and throws what a listener throws. */
export const createEvents = (): GatewayEvents => new EventEmitter()
