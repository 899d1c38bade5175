import type { Config } from '../config/schema/schema.ts'
import type { Call, Layer, Service } from '../mesh/call.ts'
import type { Mesh } from '../mesh/compile.ts'
import type { Generation } from '../mesh/live.ts'
import type { StateStore } from '../mesh/policy.ts'
import type { MeshConfig } from '../mesh/settings.ts'
import type { Names } from './names.ts'
import type { Server } from './server.ts'

/** Everything compiled from a config, in force until the next generation. Immutable. */
export interface GatewayGeneration extends Generation {
  readonly config: Config
  /** Hash of the effective config. */
  readonly hash: string
  /** The servers by name, in the order of the config. */
  readonly servers: ReadonlyMap<string, Server>
  readonly names: Names
  readonly mesh: Mesh
  /** The mesh's config. */
  readonly policies: MeshConfig
  /** The state of the mesh's policies. */
  readonly state: StateStore
  /** Returns the chain for a call, and assigns the call to an arm of an experiment, if any. Use once per call. */
  serviceFor(call: Call): Service
  /**
   * Returns client-side faults for the gateway's own answers, such as lists over all servers. Undefined while no fault
   * is armed for the request.
   */
  readonly clientFaults: (server: string, method: string) => Layer | undefined
  /** Replaces servers by newer servers of the same name, for this generation's unsent calls and retries. */
  follow(servers: ReadonlyMap<string, Server>): void
}
