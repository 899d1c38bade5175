import type { Attributes } from '@opentelemetry/api'
import type { AttemptFacts } from './call-trace.ts'
import { commonAttributes } from './call-attributes.ts'
import { ATTRIBUTES as A } from './spans.ts'

/** How a replica of a server is reached. */
export interface Peer {
  /** `pipe` for a process of the gateway's own. */
  readonly transport: 'tcp' | 'pipe'
  readonly address?: string | undefined
  readonly port?: number | undefined
  /** The protocol version that it is spoken to in. */
  readonly version?: string | undefined
}

/** What the span of an attempt says besides its result. */
export function attemptAttributes(facts: AttemptFacts, peer: Peer | undefined): Attributes {
  const { call, replica, startedAt } = facts
  const attributes = commonAttributes(call)
  attributes[A.attempt] = call.attempt
  if (replica !== undefined) attributes[A.replica] = replica
  if (call.deadline !== undefined) attributes[A.deadline] = Math.round(call.deadline.at - startedAt)
  if (facts.endedAt === undefined) attributes[A.abandoned] = true
  if (peer === undefined) return attributes
  attributes[A.transport] = peer.transport
  if (peer.address !== undefined) attributes[A.address] = peer.address
  if (peer.port !== undefined) attributes[A.port] = peer.port
  if (peer.version !== undefined) attributes[A.protocolVersion] = peer.version
  return attributes
}
