import type { CallWire, ChannelWire } from './wire-shape.ts'
import type { Signal } from './cancel.ts'
import type { Millis } from './clock.ts'
import type { Message, Outcome } from './outcome.ts'
import type { CallRecord } from './record.ts'

export type { Message } from './outcome.ts'
export type { CallResult, Outcome, Partial, PolicyName, Verdict, WireReply } from './outcome.ts'
export {
  fates,
  newRecord,
  type CallRecord,
  type HasAlternative,
  type Fate,
  type FaultFate,
  type Holding,
  type InjectedFault,
} from './record.ts'

/** A JSON-RPC request id, as its sender chose it. */
export type RequestId = string | number

/** Headers of an agent's HTTP request, lower case. */
export type InboundHeaders = Readonly<Record<string, string | string[] | undefined>>

/** When a call has to be over. */
export interface Deadline {
  /** A point on the monotonic clock; the call's progress may move it. */
  at: Millis
  /** The latest point that it may be moved to; absent where nothing moves it. */
  readonly latest?: Millis
  /** Kept back for the way home when the server is told how long it has, in ms; undefined when it is not told. */
  readonly reserveMs: Millis | undefined
  /** Whether it is earlier than the operator's own, because the caller asked for that. */
  readonly askedFor: boolean
}

/** Sends the caller's answer to a server's request back to that server; the text carries any id. */
export type Answer = (text: string) => Promise<void>

/**
 * The way of everything that travels before a call's answer: progress, logs, requests of the server.
 * A layer may wrap it. Once a byte went through, the call may not be sent again.
 */
export interface Channel {
  /** The upstream streams its reply: so shall we. Idempotent. */
  open(): void
  /**
   * The upstream ended its stream before the answer, to be asked again after `retryMs`: so may we. `askNow` is for a caller
   * that comes back sooner: the upstream is asked at once, but not again within 100 ms.
   */
  pause(retryMs: Millis, askNow?: () => void): void
  /**
   * Passes one message on to the caller; `answer` is given when the message is a request.
   * A promise means "wait for it before the next one" (backpressure).
   */
  send(message: Message, answer?: Answer): Promise<void> | undefined
  /** The bytes that the channel is a part of, where faults can get at them. */
  readonly wire?: ChannelWire
}

/**
 * The sender of calls, for as long as it stays: upstream sessions are kept per caller. A downstream session is a
 * caller; so is the gateway itself when it discovers tools.
 */
export interface Caller {
  /** Unique in this process, never sent to a server. */
  readonly id: string
  /** The `initialize` params which an upstream is told on behalf of this caller. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** HTTP headers that came with it, lower case. Servers get those of them that they are configured to get. */
  readonly headers?: InboundHeaders
  /** The client that it stands for where clients have shares of something; undefined for the gateway itself. */
  readonly client?: string
  /** Whether somebody waits for what servers send outside of calls. */
  readonly listening: boolean
  /**
   * The era that it speaks. In the modern one it answers an `input_required` by calling again, and may stand for several clients,
   * which cannot be told apart; for one of the legacy era the upstream asks, over the call's channel, and calls again by itself.
   */
  readonly era: 'legacy' | 'modern'
  /** Takes what `server` sends outside of any call. */
  receive(server: string, message: Message, answer?: Answer): void
}

/** Any request to a server, on its way through the mesh. */
export interface Call {
  readonly server: string
  readonly method: string
  /** The tool's name as its server knows it; only for `tools/call`. */
  readonly tool: string | undefined
  /** The caller's own id: the reply carries it. */
  readonly id: RequestId
  readonly message: Message
  /** Request headers that the server's `forwardHeaders` lets through, lower case, under their new names. */
  readonly headers: Readonly<Record<string, string>> | undefined
  /** All headers of the agent's request: for policies to read, never for servers. */
  readonly inbound: InboundHeaders
  readonly caller: Caller
  /** On whose behalf, as its caller says. At most 64 characters. */
  readonly tenant: string
  /** Whom it counts as where tenants share: anybody may call itself what it likes, so this need not be its tenant. */
  readonly countsAs: string
  readonly channel: Channel
  /** Aborts the call; its `reason` is the `GatewayError` to report. */
  readonly signal: Signal
  readonly deadline: Deadline | undefined
  /** The number of this try, from 1. */
  readonly attempt: number
  /** Index of the replica to send it to; undefined: any. */
  readonly replica: number | undefined
  /** The work of faults on the bytes of the server's reply; undefined for none. */
  readonly wire?: CallWire | undefined
  /** Told each time that it is handed to a connection of the server: from then on it may run. */
  readonly onSent?: (() => void) | undefined
  readonly record: CallRecord
}

/** The id by which its agent knows a call. */
export const requestIdOf = ({ id, record }: Pick<Call, 'id' | 'record'>): RequestId => record.requestId ?? id

/** Everything between the agent and a server. Resolves always: an upstream's failure is a value. */
export type Service = (call: Call) => Promise<Outcome>

/** A policy's compiled form. `next` may be called never, once or many times. */
export type Layer = (next: Service) => Service

/** The fields of a call that a layer may change before it passes the call on. */
export type CallChanges = {
  -readonly [
    Key in Exclude<keyof Call, 'caller' | 'record' | 'inbound' | 'tenant' | 'countsAs' | 'method'>
  ]?: Call[Key]
}

/** The same call with changes. One literal, so that every call keeps one hidden class. */
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
