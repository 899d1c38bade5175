import type { Call, CallResult } from '../../../mesh/call.ts'
import type { Shot } from '../../fault.ts'
import { json } from '../shared/http.ts'
import { withId } from './replies.ts'

/**
 * A reply that no call waits for: the gateway reads it like any other, and finds that its id is none that it has
 * asked for. Its id is always a string of its own: where servers answer to numbers of the gateway's, that of the
 * caller could be another call's. It goes to no audience: transports throw such replies away before that.
 */
export function orphan(call: Call, { text, status }: CallResult, shot: Shot): void {
  const read = shot.world.read(call, json(withId(text, JSON.stringify(`${call.id}-over`)), status))
  shot.note({ discarded: read.kind === 'answered' ? 'unread' : read.error.reason })
}
