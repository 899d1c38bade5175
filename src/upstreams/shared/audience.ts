import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import { INTERNAL_ERROR } from '../../protocol/jsonrpc.ts'
import type { Deliver, InFlight } from '../pipe/in-flight.ts'

/** The caller that shall answer a request of the server, and the way to the caller. */
export interface Respondent {
  readonly caller: Caller
  readonly deliver: Deliver
}

/** Why nobody can answer: the JSON-RPC error that the server gets. */
export interface Refusal {
  readonly code: number
  readonly message: string
}

/** Decides who gets what a server sends besides answers and progress. */
export interface Audience {
  respondent(request: Message, calls: InFlight): Respondent | Refusal
  notify(notification: Message, calls: InFlight): Promise<void> | undefined
  /** The answer to a call that asks for what is another's: it is not sent. */
  refusal?(call: Call): Outcome | undefined
  /** Takes the answer to a caller's request; gives what of it is for that caller. */
  answered?(method: string, caller: Caller, reply: Message): Message
  /** A caller has left and does not come back. */
  left?(caller: Caller): void
}

const unclear: Refusal = { code: INTERNAL_ERROR, message: 'it cannot be told which client this is for' }

/**
 * The audience of an upstream session that is held on behalf of one caller: everything is for that caller. One of
 * the modern era stands for all clients that look alike, so what belongs to a call has to be that of the only one.
 */
export function soloAudience(server: string, caller: Caller): Audience {
  const isUnclear = (calls: InFlight) => caller.era === 'modern' && calls.onlyCaller() === undefined
  return {
    respondent: (_, calls) => (isUnclear(calls) ? unclear : { caller, deliver: calls.wayTo(caller) }),
    notify(notification, calls) {
      if (notification.value.method === 'notifications/message') {
        return isUnclear(calls) ? undefined : calls.wayTo(caller)(notification)
      }
      caller.receive(server, notification)
      return undefined
    },
  }
}
