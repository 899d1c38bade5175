import type { Call, Outcome } from '../mesh/call.ts'
import { isObject, paramsOf } from '../protocol/jsonrpc.ts'
import { PROTOCOL_VERSION_KEY, onceGiven } from '../protocol/versions.ts'

// Values that spans and metrics share, from OpenTelemetry's semantic conventions for MCP:
// https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/

/** `gen_ai.operation.name` of a tool call. */
export const EXECUTE_TOOL = 'execute_tool'

/** `network.protocol.name` of agents, and of servers behind a URL. */
export const HTTP = 'http'

/** The transport, address and protocol version between the gateway and a replica of a server. */
export interface Peer {
  /** `pipe` for a server that is a child process of the gateway. */
  readonly transport: 'tcp' | 'pipe'
  readonly address?: string | undefined
  readonly port?: number | undefined
  /** The protocol version spoken to the server. */
  readonly version?: string | undefined
}

/**
 * Returns the attribute `error.type` of a call or an attempt, after OpenTelemetry's conventions for MCP; undefined
 * without a failure. It is the code of a JSON-RPC error, or `tool_error` for `isError: true`. Else it is the reason of
 * the gateway's error, or the verdict on an unusable reply.
 */
export function errorTypeOf(outcome: Outcome): string | undefined {
  if (outcome.kind !== 'answered') return outcome.error.reason
  const { verdict } = outcome
  switch (verdict) {
    case 'rpc_error':
      return codeOf(outcome.result.value.error) ?? verdict
    case 'tool_error':
    case 'schema_invalid':
    case 'json_invalid':
    case 'partial_silent':
      return verdict
    case 'unchecked':
    case 'correct':
    case 'partial_declared':
    case 'drift':
      return undefined
  }
}

/** Returns the code of a JSON-RPC error as text; undefined without a code. */
export function codeOf(error: unknown): string | undefined {
  return isObject(error) && typeof error.code === 'number' ? String(error.code) : undefined
}

/** Returns the agent's protocol version, from the request's `_meta`, from its header, or from the handshake. */
export function versionOf({
  message,
  inbound,
  caller,
}: Pick<Call, 'message' | 'inbound' | 'caller'>): string | undefined {
  const meta = paramsOf(message.value)._meta
  const said = isObject(meta) ? meta[PROTOCOL_VERSION_KEY] : undefined
  const version = said ?? inbound['mcp-protocol-version'] ?? caller.initializeParams.protocolVersion
  return typeof version === 'string' ? onceGiven(version) : undefined
}
