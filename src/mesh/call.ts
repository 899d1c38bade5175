import type { Signal } from './cancel.ts'
import type { GatewayError } from './errors.ts'
import type { Millis } from './clock.ts'

/** A JSON-RPC request id, as its sender chose it. */
export type RequestId = string | number

/** One JSON-RPC message on its way: its exact text, and the value that was read from it. */
export interface Message {
  /** The JSON text. Nobody re-serialises it: changes are spliced in, so that unknown fields survive. */
  readonly text: string
  /** What `JSON.parse` made of `text`. */
  readonly value: Readonly<Record<string, unknown>>
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
  /** The upstream ended its stream before the answer, to be asked again after `retryMs`: so may we. */
  pause(retryMs: Millis): void
  /**
   * Passes one message on to the caller; `answer` is given when the message is a request.
   * A promise means "wait for it before the next one" (backpressure).
   */
  send(message: Message, answer?: Answer): Promise<void> | undefined
}

/**
 * Whoever calls, for as long as they stay: upstream conversations are kept per caller.
 * A downstream session is one; so is the gateway itself when it discovers tools.
 */
export interface Caller {
  /** Unique in this process, never sent to a server. */
  readonly id: string
  /** The `initialize` params which an upstream is told on behalf of this caller. */
  readonly hello: Readonly<Record<string, unknown>>
  /** HTTP headers that came with it, lower case. Servers get those of them that they are configured to get. */
  readonly headers?: Readonly<Record<string, string | string[] | undefined>>
  /** Whether somebody waits for what servers send outside of calls. */
  readonly listening: boolean
  /**
   * Whether it takes results as the modern era has them: it answers an `input_required` by calling again.
   * For all others the upstream asks, over the call's channel, and calls again by itself. Such a caller may
   * stand for several clients, which cannot be told apart.
   */
  readonly takesInputRequired: boolean
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
  readonly caller: Caller
  readonly channel: Channel
  /** Aborts the call; its `reason` is the `GatewayError` to report. */
  readonly signal: Signal
  readonly record: CallRecord
}

/** The flat facts of one call. Layers write them, `observe` reads them once, at the end. */
export interface CallRecord {
  readonly startedAt: Millis
  /** Tries at an upstream. */
  attempts: number
  /** Whether any byte of the request was handed to an upstream. */
  sent: boolean
  /** When the first byte reached the caller; from then on nothing may be retried. */
  firstByteAt: Millis | undefined
  /** Index of the replica that the last attempt went to. */
  replica: number | undefined
  /** Conversations that had to be opened again for this call. */
  recoveries: number
}

/** A complete JSON-RPC response that carries the call's own id. */
export interface CallResult extends Message {
  /** HTTP status to answer with; 200 unless an upstream said otherwise. */
  readonly status: number
}

/** How good a reply was. `unchecked` is a verdict of its own: correctness is never overstated. */
export type Verdict = 'unchecked' | 'tool_error' | 'rpc_error'

/** The name of the layer that rejected a call. */
export type PolicyName = string

export type Outcome =
  | { readonly kind: 'answered'; readonly result: CallResult; readonly verdict: Verdict }
  | { readonly kind: 'failed'; readonly error: GatewayError }
  | { readonly kind: 'rejected'; readonly error: GatewayError; readonly by: PolicyName }

/** Everything between the agent and a server. Resolves always: an upstream's failure is a value. */
export type Service = (call: Call) => Promise<Outcome>

/** A policy's compiled form. `next` may be called never, once or many times. */
export type Layer = (next: Service) => Service

/** A record for a call that starts now. */
export function newRecord(startedAt: Millis): CallRecord {
  return { startedAt, attempts: 0, sent: false, firstByteAt: undefined, replica: undefined, recoveries: 0 }
}

/** The same call under another signal. One literal, so that every call keeps one hidden class. */
export function withSignal(call: Call, signal: Signal): Call {
  return {
    server: call.server,
    method: call.method,
    tool: call.tool,
    id: call.id,
    message: call.message,
    headers: call.headers,
    caller: call.caller,
    channel: call.channel,
    signal,
    record: call.record,
  }
}
