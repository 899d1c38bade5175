import type { Kit, Scope } from '../../mesh/policy.ts'
import { estimateOf, type LatencyEstimate } from '../state/estimate.ts'
import { loadOf, type ReplicaLoad } from './load.ts'

/** One endpoint of a server, and what is known of it. */
export interface Replica {
  readonly index: number
  /** Shared by all tools. */
  readonly load: ReplicaLoad
  /** How long this tool takes there. */
  readonly estimate: LatencyEstimate
}

/** All replicas of a scope's server. */
export function replicasOf(kit: Kit, scope: Scope): Replica[] {
  return Array.from({ length: scope.replicas }, (_, index) => ({
    index,
    load: loadOf(kit, scope, index),
    estimate: estimateOf(kit, scope, index),
  }))
}
