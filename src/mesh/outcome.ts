import type { GatewayError } from './errors.ts'

/** A complete JSON-RPC response with the call's own id. */
export interface CallResult extends Message {
  /** HTTP status to answer with; 200 unless an upstream said otherwise. */
  readonly status: number
}

/** How good a reply was. `unchecked` is a separate verdict, so that an unchecked reply never counts as correct. */
export const verdicts = [
  'unchecked',
  'correct',
  /** The server said that its reply has a gap. */
  'partial_declared',
  /** The reply has a gap that the server did not declare. */
  'partial_silent',
  'schema_invalid',
  /** Text that claims to be JSON and is not. */
  'json_invalid',
  /** The reply has another shape than all earlier replies. */
  'drift',
  'tool_error',
  'rpc_error',
] as const

export type Verdict = (typeof verdicts)[number]

/** The gap in a reply, and the reason for it. The agent finds this object under `_meta["dev.breakwater/partial"]`. */
export interface Partial {
  readonly source: 'declared' | 'detected' | 'fallback' | 'stale' | 'missing_servers'
  /** Why data is missing, in words that a model understands; holds no secret. */
  readonly reason: string
  /** Missing JSON Pointers, tools or servers. */
  readonly missing?: readonly string[]
  /** Share of the whole that is present, in [0, 1]. */
  readonly completeness?: number
  /** Whether a text block also names the gap, for hosts that never show `_meta` to their model. */
  readonly notice: boolean
}

/** The name of the layer that rejected a call. */
export type PolicyName = string

/** How to write an outcome to the agent in an unusual way. Only faults ask for this. */
export interface WireReply {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  /** The raw body, in place of a JSON-RPC response. */
  readonly body?: string
  /** `reset`: breaks the connection at once. `shape`: sends the normal reply; a `WireShape` breaks the connection. */
  readonly end?: 'reset' | 'shape'
}

export type Outcome =
  | {
      readonly kind: 'answered'
      readonly result: CallResult
      readonly verdict: Verdict
      readonly partial?: Partial
      readonly wire?: WireReply
    }
  | {
      readonly kind: 'failed'
      readonly error: GatewayError
      /** The verdict on a wrong reply that was held back. */
      readonly verdict?: Verdict
      readonly wire?: WireReply
    }
  | {
      readonly kind: 'rejected'
      readonly error: GatewayError
      readonly by: PolicyName
      readonly wire?: WireReply
    }

/** A JSON-RPC message in transit: its exact text and its parsed value. */
export interface Message {
  /** The JSON text. Never re-serialised: changes are spliced in, so unknown fields survive. */
  readonly text: string
  /** The result of `JSON.parse(text)`. */
  readonly value: Readonly<Record<string, unknown>>
}
