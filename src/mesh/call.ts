import type { CallWire, ChannelWire } from './wire-shape.ts'
import type { Signal } from './cancel.ts'
import type { Millis } from './clock.ts'
import type { Message, Outcome } from './outcome.ts'
import type { CallRecord } from './record.ts'

export type { Message } from './outcome.ts'
export type { CallResult, Outcome, Partial, PolicyName, Verdict, WireReply } from './outcome.ts'
export { newRecord, type CallRecord, type HasAlternative, type Holding } from './record.ts'

/** A JSON-RPC request id in its sender's form. */
export type RequestId = string | number

/** Headers of an agent's HTTP request, lower case. */
export type InboundHeaders = Readonly<Record<string, string | string[] | undefined>>

/** The time at which a call must end. */
export interface Deadline {
  /** A point on the monotonic clock; progress of the call may move it. */
  at: Millis
  /** The latest point that `at` may move to; absent when nothing moves it. */
  readonly latest?: Millis
  /**
   * Milliseconds subtracted from the remaining time told to the server, for the reply's way back; undefined when no
   * time is told.
   */
  readonly reserveMs: Millis | undefined
  /** True when the caller set this deadline; it is then earlier than the operator's deadline. */
  readonly askedFor: boolean
}

/** Sends the caller's answer to the request of a server. `text` is a JSON-RPC response; its id is replaced. */
export type Answer = (text: string) => Promise<void>

/**
 * Carries every message that comes before a call's answer: progress, logs, requests of the server.
 * A layer may wrap the channel. After the first message to the caller, the call must not be sent again.
 */
export interface Channel {
  /** The upstream streams its reply, so the gateway may stream too. Idempotent. */
  open(): void
  /**
   * The upstream ended its stream before the answer and wants a new request after `retryMs`; the gateway may do the
   * same. `askNow` is for a caller that returns sooner: it sends the new request at once, or 100 ms after the stream's
   * end.
   */
  pause(retryMs: Millis, askNow?: () => void): void
  /**
   * Passes a message on to the caller; `answer` is given when the message is a request.
   * A returned promise asks the sender to wait before the next message (backpressure).
   */
  send(message: Message, answer?: Answer): Promise<void> | undefined
  /** The byte stream around the channel, for faults. */
  readonly wire?: ChannelWire
}

/** A sender of calls with its own upstream sessions: a downstream session, or the gateway during tool discovery. */
export interface Caller {
  /** Unique in this process, never sent to a server. */
  readonly id: string
  /** The `initialize` params that an upstream gets on behalf of this caller. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** HTTP headers that came with the caller, lower case. Servers get only the headers in their configuration. */
  readonly headers?: InboundHeaders
  /** The client of this caller, for limits per client; undefined for the gateway itself. */
  readonly client?: string
  /** Whether the caller waits for servers' messages outside of calls. */
  readonly listening: boolean
  /**
   * The protocol era of the caller. A modern caller answers an `input_required` with another call, and may represent
   * several clients that the gateway cannot tell apart. For a legacy caller, the gateway asks over the call's channel
   * and then repeats the call itself.
   */
  readonly era: 'legacy' | 'modern'
  /** Takes a message of `server` from outside of any call. */
  receive(server: string, message: Message, answer?: Answer): void
}

/** Any request to a server, on its way through the mesh. */
export interface Call {
  readonly server: string
  readonly method: string
  /** The tool's name at its server; only for `tools/call`. */
  readonly tool: string | undefined
  /** The request's id; the reply has the same id. */
  readonly id: RequestId
  readonly message: Message
  /** Request headers that the server's `forwardHeaders` lets through, lower case, under their new names. */
  readonly headers: Readonly<Record<string, string>> | undefined
  /** All headers of the agent's request: for policies to read, never for servers. */
  readonly inbound: InboundHeaders
  readonly caller: Caller
  /** The tenant named by the caller. At most 64 characters. */
  readonly tenant: string
  /** The tenant used for shared limits. A caller may choose any tenant name, so this may differ from `tenant`. */
  readonly countsAs: string
  readonly channel: Channel
  /** Aborts the call; its `reason` is the `GatewayError` to report. */
  readonly signal: Signal
  readonly deadline: Deadline | undefined
  /** The number of this attempt, from 1. */
  readonly attempt: number
  /** Index of the replica to send the call to; undefined: any. */
  readonly replica: number | undefined
  /** How faults change the bytes of the server's reply; undefined without such faults. */
  readonly wire?: CallWire | undefined
  /** Called each time the call is handed to a connection of the server. From then on the call may run. */
  readonly onSent?: (() => void) | undefined
  readonly record: CallRecord
}

/** Returns the id that the agent gave to its request. */
export const requestIdOf = ({ id, record }: Pick<Call, 'id' | 'record'>): RequestId => record.requestId ?? id

/** Handles a call and resolves to its outcome. Never rejects: a failure of the server is an outcome, too. */
export type Service = (call: Call) => Promise<Outcome>

/** A policy's compiled form. `next` may be called never, once or many times. */
export type Layer = (next: Service) => Service

/** The fields of a call that a layer may change before passing the call on. */
export type CallChanges = {
  -readonly [
    Key in Exclude<keyof Call, 'caller' | 'record' | 'inbound' | 'tenant' | 'countsAs' | 'method'>
  ]?: Call[Key]
}

/** Returns a copy of the call with changes. A single object literal gives all calls one hidden class (V8). */
export function derive(call: Call, changes: CallChanges): Call {
  return {
    server: changes.server ?? call.server,
    method: call.method,
    tool: changes.tool ?? call.tool,
    id: changes.id ?? call.id,
    message: changes.message ?? call.message,
    headers: 'headers' in changes ? changes.headers : call.headers,
    inbound: call.inbound,
    caller: call.caller,
    tenant: call.tenant,
    countsAs: call.countsAs,
    channel: changes.channel ?? call.channel,
    signal: changes.signal ?? call.signal,
    deadline: changes.deadline ?? call.deadline,
    attempt: changes.attempt ?? call.attempt,
    replica: 'replica' in changes ? changes.replica : call.replica,
    wire: 'wire' in changes ? changes.wire : call.wire,
    onSent: changes.onSent ?? call.onSent,
    record: call.record,
  }
}
