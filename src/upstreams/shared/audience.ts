import type { Call, Caller, Message, Outcome } from '../../mesh/call.ts'
import { INTERNAL_ERROR } from '../../protocol/jsonrpc.ts'
import type { Deliver, InFlight } from '../pipe/in-flight.ts'

/** The caller that answers a server's request, and the function that sends messages to this caller. */
export interface Respondent {
  readonly caller: Caller
  readonly deliver: Deliver
}

/** The JSON-RPC error for the server when nobody can answer. */
export interface Refusal {
  readonly code: number
  readonly message: string
}

/** Decides who gets a server's messages besides answers and progress. */
export interface Audience {
  respondent(request: Message, calls: InFlight): Respondent | Refusal
  notify(notification: Message, calls: InFlight): Promise<void> | undefined
  /** Returns an error for a request about another caller's task, which the server must not get; otherwise undefined. */
  refusal?(call: Call): Outcome | undefined
  /** Takes the answer to a caller's request; returns it without other callers' tasks. */
  answered?(method: string, caller: Caller, reply: Message): Message
  /** Forgets a departed caller. */
  left?(caller: Caller): void
}

const unclear: Refusal = { code: INTERNAL_ERROR, message: 'cannot tell which client this request is for' }

/**
 * Returns the audience of an upstream session for a single caller: every message is for this caller. A modern caller
 * stands for several clients, so a message that belongs to a call is delivered only if exactly one call is open.
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
