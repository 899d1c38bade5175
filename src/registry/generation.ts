import type { Config } from '../config/schema/schema.ts'
import type { Call, Layer, Service } from '../mesh/call.ts'
import type { Mesh } from '../mesh/compile.ts'
import type { Generation } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import type { MeshConfig } from '../mesh/settings.ts'
import type { Names } from './names.ts'
import type { Server } from './server.ts'

/** Everything that one config decides: immutable, and in force until the next one is. */
export interface GatewayGeneration extends Generation {
  readonly config: Config
  /** Hash of the effective config. */
  readonly hash: string
  /** In the order of the config. */
  readonly servers: ReadonlyMap<string, Server>
  readonly names: Names
  readonly mesh: Mesh
  /** The config that the mesh is compiled from. */
  readonly policies: MeshConfig
  /** The state that its policies remember. */
  readonly state: StateStore
  /** The chain for a call, which is in an arm of an experiment from now on if it is in any. To be asked once for each call. */
  serviceFor(call: Call): Service
  /**
   * The faults towards agents that answers of the gateway's own have to pass, such as lists over all servers; undefined
   * while none is armed for such requests.
   */
  readonly clientFaults: (server: string, method: string) => Layer | undefined
  /** Calls of this generation that are not sent yet, or sent again, go to these servers where they have come in the place of its own. */
  follow(servers: ReadonlyMap<string, Server>): void
}
