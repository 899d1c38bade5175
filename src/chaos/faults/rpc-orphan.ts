import type { Call, CallResult } from '../../mesh/call.ts'
import type { Shot } from '../fault.ts'
import { withId } from './rpc-parts.ts'

/**
 * Lets the gateway find a reply that no call waits for. Its id is always a string: where servers answer to numbers
 * of the gateway's own, that of the caller could be another call's.
 */
export function orphan(call: Call, { text, value }: CallResult, { world }: Shot): void {
  const id = String(call.id)
  world.tell(call.server, { text: withId(text, JSON.stringify(id)), value: { ...value, id } })
}
