import type { Call, Caller, CallRecord, Channel, Message, RequestId } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Millis } from '../mesh/clock.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { isEmpty, paramsOf } from '../protocol/jsonrpc.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Server } from '../registry/server.ts'
import { forwardedWith } from '../upstreams/forwarded.ts'
import type { Response } from './respond.ts'
import type { Tenancy } from '../access/caller.ts'
import type { IncomingHttpHeaders } from 'node:http'
import type { HttpReply } from '../wire/http-reply.ts'

/** A request of an agent, before its server is known. */
export interface McpRequest {
  readonly id: RequestId
  readonly message: Message
  /** Headers of the HTTP request, lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Protocol headers sent with the request to its server, regardless of `forwardHeaders`. */
  readonly mirrored?: Readonly<Record<string, string>>
  readonly caller: Caller
  readonly tenancy: Tenancy
  /** Returns the channel for messages a server sends before its answer. */
  readonly channelFor: (server: string) => Channel
  readonly signal: Signal
  readonly record: CallRecord
}

/** The `initialize` result of the server or of the gateway, as JSON text; or an error. */
export type Welcome =
  | {
      readonly text: string
      /** The protocol version in `text`, if different from the requested version. */
      readonly version?: string
    }
  | { readonly error: GatewayError }

/**
 * An agent's view of the servers: a single server unchanged, or all servers together. An endpoint translates names and
 * chooses servers; other modules handle eras, sessions and HTTP.
 */
export interface Endpoint {
  /** The server that agents see unchanged; undefined when agents see all servers. */
  readonly server: string | undefined
  /** Returns the `initialize` result for an agent that waits at most `limitMs`; waits without limit when undefined. */
  welcome(generation: GatewayGeneration, caller: Caller, version: string, limitMs?: Millis): Promise<Welcome>
  request(generation: GatewayGeneration, request: McpRequest): Promise<Response>
  /** Passes an agent's notification on to the servers of this endpoint. */
  notify(generation: GatewayGeneration, caller: Caller, message: Message): void
  /**
   * Translates a server's message for the agents of this endpoint; undefined when the message must not be passed on.
   */
  inbound(generation: GatewayGeneration, server: string, message: Message): Message | undefined
  /** Translates an agent's message to a server that asked a question. */
  outbound(generation: GatewayGeneration, server: string, message: Message): Message
}

/**
 * Returns the `initialize` result of an endpoint under the config in force, and keeps its server open meanwhile.
 * Returns an error when the server was removed meanwhile, because a new session would have no server.
 */
export async function welcomeTo(
  endpoint: Endpoint,
  live: Live<GatewayGeneration>,
  caller: Caller,
  { version, limitMs }: { readonly version: string; readonly limitMs: Millis | undefined },
): Promise<Welcome> {
  const welcome = await live.within((generation) => endpoint.welcome(generation, caller, version, limitMs))
  const { server } = endpoint
  if (server === undefined || live.current.servers.has(server)) return welcome
  return { error: gatewayError('upstream_unavailable', 'the server was removed from the config meanwhile') }
}

/** Returns the call for a request, with the settings of its server. */
export function callTo(server: Server, message: Message, request: McpRequest): Call {
  const { config } = server
  const method = message.value.method as string
  return {
    server: server.name,
    method,
    // The name is a string: earlier checks reject other values.
    tool: method === 'tools/call' ? (paramsOf(message.value).name as string) : undefined,
    id: request.id,
    message,
    headers: config.type === 'stdio' ? undefined : headersFor(config.forwardHeaders, request),
    inbound: request.headers,
    caller: request.caller,
    tenant: request.tenancy.tenant,
    countsAs: request.tenancy.countsAs,
    channel: request.channelFor(server.name),
    signal: request.signal,
    deadline: undefined,
    attempt: 1,
    replica: undefined,
    wire: undefined,
    onSent: undefined,
    record: request.record,
  }
}

function headersFor(
  names: Readonly<Record<string, string>>,
  { headers, mirrored, caller }: McpRequest,
): Call['headers'] {
  const agent = isEmpty(names) ? undefined : forwardedWith(names, headers, caller)
  return mirrored === undefined ? agent : { ...agent, ...mirrored }
}

/** An HTTP request of an agent, before its body is read as JSON-RPC. */
export interface InboundRequest {
  readonly endpoint: Endpoint
  readonly headers: IncomingHttpHeaders
  /** The client's name, made from its address: see `clientOf`. */
  readonly client: string
  readonly response: HttpReply
}
