import type { GatewayError } from './errors.ts'

/** A complete JSON-RPC response that carries the call's own id. */
export interface CallResult extends Message {
  /** HTTP status to answer with; 200 unless an upstream said otherwise. */
  readonly status: number
}

/** How good a reply was. `unchecked` is a verdict of its own: correctness is never overstated. */
export const verdicts = [
  'unchecked',
  'correct',
  /** The server said itself that something is missing. */
  'partial_declared',
  /** Something is missing, and the server did not say so. */
  'partial_silent',
  'schema_invalid',
  /** Text that claims to be JSON, and is none. */
  'json_invalid',
  /** Another shape than all replies before. */
  'drift',
  'tool_error',
  'rpc_error',
] as const

export type Verdict = (typeof verdicts)[number]

/** The gap in a reply, and the reason for it. The agent finds this object under `_meta["dev.breakwater/partial"]`. */
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
  /** Breaks off the connection: at once, or where the shape of its bytes says, with the reply as it would be else. */
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
      /** The verdict on a reply that came and was held back because it was wrong. */
      readonly verdict?: Verdict
      readonly wire?: WireReply
    }
  | {
      readonly kind: 'rejected'
      readonly error: GatewayError
      readonly by: PolicyName
      readonly wire?: WireReply
    }

/** One JSON-RPC message on its way: its exact text, and the value that was read from it. */
export interface Message {
  /** The JSON text. Nobody re-serialises it: changes are spliced in, so that unknown fields survive. */
  readonly text: string
  /** The value that `JSON.parse` made of `text`. */
  readonly value: Readonly<Record<string, unknown>>
}
