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
import type { IncomingHttpHeaders, ServerResponse } from 'node:http'

/** One request of an agent, before anybody knows which server it is for. */
export interface McpRequest {
  readonly id: RequestId
  readonly message: Message
  /** Headers of the HTTP request, lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Headers of the protocol's own that go with the request to its server, whatever `forwardHeaders` says. */
  readonly mirrored?: Readonly<Record<string, string>>
  readonly caller: Caller
  readonly tenancy: Tenancy
  /** The way back for what a server sends before its answer. */
  readonly channelFor: (server: string) => Channel
  readonly signal: Signal
  readonly record: CallRecord
}

/** The `initialize` result, by which a client knows its server or the gateway; or an error. */
export type Welcome =
  | {
      readonly text: string
      /** The version that `text` names in place of the one that was asked for. */
      readonly version?: string
    }
  | { readonly error: GatewayError }

/**
 * The view that an agent has: one server as it is, or all servers under one roof. An endpoint knows names and servers;
 * it knows nothing of eras, sessions and HTTP.
 */
export interface Endpoint {
  /** The server that is shown as it is; undefined when all are shown. */
  readonly server: string | undefined
  /** The `initialize` result for an agent that waits `limitMs` for it at most; undefined: as long as it takes. */
  welcome(generation: GatewayGeneration, caller: Caller, version: string, limitMs?: Millis): Promise<Welcome>
  request(generation: GatewayGeneration, request: McpRequest): Promise<Response>
  /** A notification of the agent that concerns its servers. */
  notify(generation: GatewayGeneration, caller: Caller, message: Message): void
  /** A message of a server, in the words of this endpoint; undefined when agents get it from elsewhere. */
  inbound(generation: GatewayGeneration, server: string, message: Message): Message | undefined
  /** Puts an agent's message to a server that asked the agent something into the words of that server. */
  outbound(generation: GatewayGeneration, server: string, message: Message): Message
}

/**
 * The `initialize` result of an endpoint, by the config that is in force now: its server is not closed under it. An error when
 * that was removed meanwhile, for whoever begins something then would begin it with nobody.
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

/** Makes the call that a request is, in the words of its server. */
export function callTo(server: Server, message: Message, request: McpRequest): Call {
  const { config } = server
  const method = message.value.method as string
  return {
    server: server.name,
    method,
    // A string: the edge lets no other name through.
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

/** One HTTP request of an agent, read as far as HTTP goes. */
export interface InboundRequest {
  readonly endpoint: Endpoint
  readonly headers: IncomingHttpHeaders
  /** The client that it came from, as far as its address tells: see `clientOf`. */
  readonly client: string
  readonly response: ServerResponse
}
