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

/** Headers of an agent's HTTP request, lower case. */
export type InboundHeaders = Readonly<Record<string, string | string[] | undefined>>

/** When a call has to be over. */
export interface Deadline {
  /** A point on the monotonic clock. */
  readonly at: Millis
  /** Kept back for the way home when the server is told how long it has, in ms; undefined when it is not told. */
  readonly reserveMs: Millis | undefined
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
  readonly headers?: InboundHeaders
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
  /** All headers of the agent's request: for policies to read, never for servers. */
  readonly inbound: InboundHeaders
  readonly caller: Caller
  /** On whose behalf: fairness is among tenants. At most 64 characters. */
  readonly tenant: string
  readonly channel: Channel
  /** Aborts the call; its `reason` is the `GatewayError` to report. */
  readonly signal: Signal
  readonly deadline: Deadline | undefined
  /** Which try this is, from 1. */
  readonly attempt: number
  /** Index of the replica to send it to; undefined: any. */
  readonly replica: number | undefined
  readonly record: CallRecord
}

/** Why a failed call was not sent again. */
export type RetryRefusal =
  /** It may have run, and is not known to be repeatable. */
  | 'unsafe'
  /** A byte of it has reached the caller. */
  | 'streaming'
  /** It is somebody's retry already. */
  | 'inbound_attempt'
  /** The attempts that are configured are used up. */
  | 'attempts'
  /** The next try would begin after the deadline, or after the wait that the server asked for. */
  | 'deadline'
  | 'server_budget'
  | 'gateway_budget'
  | 'concurrency'

/** A fault that was aimed at a call, for whoever accounts for it. */
export interface InjectedFault {
  readonly name: string
  readonly type: string
  readonly side: 'upstream' | 'client'
  /** The try that it hit, from 1. */
  readonly attempt: number
  /** `shadow`: it was decided and not done. */
  status: 'applied' | 'not_applicable' | 'shadow'
  note?: Readonly<Record<string, unknown>>
}

/** The flat facts of one call. Layers write them, `observe` reads them once, at the end. */
export interface CallRecord {
  readonly startedAt: Millis
  /** Tries at an upstream. */
  attempts: number
  /** Whether any byte of the request was handed to an upstream. */
  sent: boolean
  /** When the first message reached the caller; from then on nothing may be retried. */
  firstByteAt: Millis | undefined
  /** Index of the replica that the last attempt went to. */
  replica: number | undefined
  /** Conversations that had to be opened again for this call. */
  recoveries: number
  /** Times that it was sent again after a failure. */
  retries: number
  /** Times that it was sent a second time while the first had not come back. */
  hedges: number
  /** Why its last failure was not followed by a retry. */
  retryRefused: RetryRefusal | undefined
  /** Whether an estimate said that its deadline could not be met. */
  infeasible: boolean
  /** Whether its arguments broke the tool's `inputSchema`. */
  invalidArguments: boolean
  /** Whether its answer is that of an earlier call with the same idempotency key, which was over or still under way. */
  replayed: 'no' | 'stored' | 'joined'
  /** Faults that were aimed at it; undefined for none. */
  faults: InjectedFault[] | undefined
  /** Questions of the server that the agent has not answered yet. */
  asking: number
  /** When the first of them came. */
  askingSince: Millis
  /** How long the agent was asked before that, in milliseconds: deadlines and timeouts stand still meanwhile. */
  askedMs: Millis
}

/** A complete JSON-RPC response that carries the call's own id. */
export interface CallResult extends Message {
  /** HTTP status to answer with; 200 unless an upstream said otherwise. */
  readonly status: number
}

/** How good a reply was. `unchecked` is a verdict of its own: correctness is never overstated. */
export type Verdict =
  | 'unchecked'
  | 'correct'
  /** The server said itself that something is missing. */
  | 'partial_declared'
  /** Something is missing, and the server did not say so. */
  | 'partial_silent'
  | 'schema_invalid'
  /** Text that claims to be JSON, and is none. */
  | 'json_invalid'
  /** Another shape than all replies before. */
  | 'drift'
  | 'tool_error'
  | 'rpc_error'

/** What is missing of a reply, and why. The agent finds it under `_meta["dev.breakwater/partial"]`. */
export interface Partial {
  readonly source: 'declared' | 'detected' | 'fallback' | 'stale' | 'missing_servers'
  /** In words that a model understands; holds no secret. */
  readonly reason: string
  /** JSON Pointers, tools or servers that are missing. */
  readonly missing?: readonly string[]
  /** Share of the whole that is there, in [0, 1]. */
  readonly completeness?: number
  /** Whether a text block says it too, for hosts that never show `_meta` to their model. */
  readonly notice: boolean
}

/** The name of the layer that rejected a call. */
export type PolicyName = string

/** How an outcome is to be put on the agent's wire, where that is not the usual way. Only faults ask for it. */
export interface WireReply {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** The body as it is, in place of a JSON-RPC response. */
  readonly body?: string
  /** Breaks off the connection. */
  readonly end?: 'reset'
}

export type Outcome =
  | {
      readonly kind: 'answered'
      readonly result: CallResult
      readonly verdict: Verdict
      readonly partial?: Partial
      readonly wire?: WireReply
    }
  | { readonly kind: 'failed'; readonly error: GatewayError; readonly wire?: WireReply }
  | {
      readonly kind: 'rejected'
      readonly error: GatewayError
      readonly by: PolicyName
      readonly wire?: WireReply
    }

/** Everything between the agent and a server. Resolves always: an upstream's failure is a value. */
export type Service = (call: Call) => Promise<Outcome>

/** A policy's compiled form. `next` may be called never, once or many times. */
export type Layer = (next: Service) => Service

/** A record for a call that starts now. */
export function newRecord(startedAt: Millis): CallRecord {
  return {
    startedAt,
    attempts: 0,
    sent: false,
    firstByteAt: undefined,
    replica: undefined,
    recoveries: 0,
    retries: 0,
    hedges: 0,
    retryRefused: undefined,
    infeasible: false,
    invalidArguments: false,
    replayed: 'no',
    faults: undefined,
    asking: 0,
    askingSince: 0,
    askedMs: 0,
  }
}

/** What a layer may change of a call that it passes on. */
export type CallChanges = {
  -readonly [Key in Exclude<keyof Call, 'caller' | 'record' | 'inbound' | 'tenant' | 'method'>]?: Call[Key]
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
    channel: changes.channel ?? call.channel,
    signal: changes.signal ?? call.signal,
    deadline: changes.deadline ?? call.deadline,
    attempt: changes.attempt ?? call.attempt,
    replica: 'replica' in changes ? changes.replica : call.replica,
    record: call.record,
  }
}
