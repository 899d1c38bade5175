import type { Call, Outcome } from '../../mesh/call.ts'
import { conventionalHistogram } from '../../mesh/metric-spec.ts'
import { isHit } from '../../mesh/classify.ts'
import { injectedFaults } from '../../mesh/injected.ts'
import type { MetricsOf, Histogram, HistogramSeries } from './instruments.ts'
import { paramsOf } from '../../protocol/jsonrpc.ts'
import { MODERN_VERSION, legacyVersions } from '../../protocol/versions.ts'
import { codeOf, errorTypeOf, EXECUTE_TOOL, HTTP, type Peer, versionOf } from '../conventions.ts'
import { labelValue, OTHER } from './label-value.ts'

/** Upper bounds of buckets for all MCP durations in OpenTelemetry's conventions, in seconds. */
const BOUNDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]

/** The attribute names of the conventions and of the gateway, by the label name in Prometheus. */
export const attributeOf = {
  mcp_method_name: 'mcp.method.name',
  gen_ai_operation_name: 'gen_ai.operation.name',
  gen_ai_tool_name: 'gen_ai.tool.name',
  gen_ai_prompt_name: 'gen_ai.prompt.name',
  error_type: 'error.type',
  rpc_response_status_code: 'rpc.response.status_code',
  mcp_protocol_version: 'mcp.protocol.version',
  network_transport: 'network.transport',
  network_protocol_name: 'network.protocol.name',
  server_address: 'server.address',
  server_port: 'server.port',
  breakwater_server: 'breakwater.server',
  breakwater_fault_injected: 'breakwater.fault.injected',
} as const

type Label = keyof typeof attributeOf

const OF_OPERATION = [
  'mcp_method_name',
  'gen_ai_operation_name',
  'gen_ai_tool_name',
  'gen_ai_prompt_name',
  'error_type',
  'rpc_response_status_code',
  'mcp_protocol_version',
  'network_transport',
  'network_protocol_name',
  'breakwater_server',
  'breakwater_fault_injected',
] as const satisfies readonly Label[]

const OF_SESSION = [
  'error_type',
  'mcp_protocol_version',
  'network_transport',
  'network_protocol_name',
  'breakwater_server',
] as const satisfies readonly Label[]

const OF_PEER = ['server_address', 'server_port'] as const satisfies readonly Label[]

/**
 * The metrics named by OpenTelemetry's conventions for MCP. To agents, the gateway is a server; to servers, it is a
 * client.
 */
export const operations = {
  serverOperations: conventionalHistogram(
    'mcp_server_operation_duration_seconds',
    'Duration of requests of agents to servers, from arrival to outcome, in seconds.',
    OF_OPERATION,
    'tools, methods and prompts × 17 types of errors × 6 versions × 2 × 17',
    BOUNDS,
  ),
  clientOperations: conventionalHistogram(
    'mcp_client_operation_duration_seconds',
    'Duration of attempts at a server, in seconds; a request may have several: retries, hedges and fallbacks.',
    [...OF_OPERATION, ...OF_PEER],
    'tools, methods and prompts × 17 types of errors × 6 versions × replicas × 2 × 17',
    BOUNDS,
  ),
  serverSessions: conventionalHistogram(
    'mcp_server_session_duration_seconds',
    'Duration of ended sessions of agents, in seconds; the version 2026-07-28 has no sessions.',
    OF_SESSION,
    'servers × reasons of the table of errors × 4 versions × 17',
    BOUNDS,
  ),
  clientSessions: conventionalHistogram(
    'mcp_client_session_duration_seconds',
    "Duration of ended sessions with servers, the gateway's own sessions included, in seconds.",
    [...OF_SESSION, ...OF_PEER],
    'servers × reasons of the table of errors × 4 versions × replicas × 17',
    BOUNDS,
  ),
} as const

/** Returns a metric's name in OpenTelemetry's conventions. */
export const conventionalName = (name: string): string => name.replace(/_seconds$/, '').replaceAll('_', '.')

type Durations = MetricsOf<typeof operations>

/**
 * Most error types of an operation with separate series. A limit is needed, because JSON-RPC error codes are unlimited.
 */
const MOST_ERRORS = 16

/** The conventions' label value for all values without separate series. */
const OTHER_VALUE = '_OTHER'

/** The methods of the protocol. All other methods from agents share one label value. */
const METHODS: ReadonlySet<string> = new Set([
  'completion/complete',
  'initialize',
  'logging/setLevel',
  'ping',
  'prompts/get',
  'prompts/list',
  'resources/list',
  'resources/read',
  'resources/subscribe',
  'resources/templates/list',
  'resources/unsubscribe',
  'server/discover',
  'subscriptions/listen',
  'tasks/cancel',
  'tasks/get',
  'tasks/list',
  'tasks/result',
  'tasks/update',
  'tools/call',
  'tools/list',
])

/** The known protocol versions; agents and servers may name other versions. */
const VERSIONS: ReadonlySet<string | undefined> = new Set([...legacyVersions, MODERN_VERSION])

/** Most prompts of a server with separate series. */
const MOST_PROMPTS = 500

/** Functions that tell facts about servers. */
export interface KnownOfServers {
  readonly isPrompt: (server: string, prompt: string) => boolean
  /** Returns the transport, address and protocol version of a call's replica; undefined when unknown. */
  readonly peerOf: (call: Call, replica: number | undefined) => Peer | undefined
}

/** The labels of an operation that differ from call to call. */
interface Variant {
  readonly errorType: string
  readonly version: string
  readonly injected: boolean
  readonly peer: Peer | undefined
}

interface KnownVariant extends Variant {
  readonly series: HistogramSeries
}

/** The series of an operation. Caches the latest series, because most calls have the same labels as the call before. */
class Lane {
  readonly #histogram: Histogram<Label>
  readonly #fixed: Readonly<Record<string, string>>
  readonly #known: KnownVariant[] = []
  readonly #errors = new Set<string>()
  #last: KnownVariant | undefined

  constructor(histogram: Histogram<Label>, fixed: Readonly<Record<string, string>>) {
    this.#histogram = histogram
    this.#fixed = fixed
  }

  of(errorType: string, code: string, version: string, injected: boolean, peer?: Peer): HistogramSeries {
    const last = this.#last
    if (last !== undefined && isAlike(last, errorType, version, injected, peer)) return last.series
    const known =
      this.#known.find((one) => isAlike(one, errorType, version, injected, peer)) ??
      this.#add(errorType, code, version, injected, peer)
    this.#last = known
    return known.series
  }

  #add(
    errorType: string,
    code: string,
    version: string,
    injected: boolean,
    peer: Peer | undefined,
  ): KnownVariant {
    if (errorType !== '' && errorType !== OTHER_VALUE && !this.#errors.has(errorType)) {
      if (this.#errors.size >= MOST_ERRORS) return this.#other(version, injected, peer)
      this.#errors.add(errorType)
    }
    const series = this.#histogram.series({
      ...unsaid,
      ...this.#fixed,
      error_type: errorType,
      rpc_response_status_code: code,
      mcp_protocol_version: version,
      breakwater_fault_injected: injected ? 'true' : '',
      ...networkOf(peer),
    })
    const made = { errorType, version, injected, peer, series }
    this.#known.push(made)
    return made
  }

  #other(version: string, injected: boolean, peer: Peer | undefined): KnownVariant {
    return (
      this.#known.find((one) => isAlike(one, OTHER_VALUE, version, injected, peer)) ??
      this.#add(OTHER_VALUE, '', version, injected, peer)
    )
  }
}

function isAlike(one: Variant, errorType: string, version: string, injected: boolean, peer?: Peer): boolean {
  return (
    one.errorType === errorType &&
    one.version === version &&
    one.injected === injected &&
    one.peer?.address === peer?.address &&
    one.peer?.port === peer?.port &&
    one.peer?.transport === peer?.transport
  )
}

/** All labels, each with an empty value. */
const unsaid = Object.fromEntries(Object.keys(attributeOf).map((label) => [label, ''])) as Record<
  Label,
  string
>

/** Returns the network labels of a peer; without a peer, the labels of an agent. */
function networkOf({ transport, address = '', port }: Peer = { transport: 'tcp' }) {
  return {
    network_transport: transport,
    network_protocol_name: transport === 'tcp' ? HTTP : '',
    server_address: address,
    server_port: port === undefined ? '' : String(port),
  }
}

interface Lanes {
  readonly server: Lane
  readonly client: Lane
}

/**
 * Records the durations of OpenTelemetry's conventions for MCP: a server duration for each request of an agent, and a
 * client duration for each attempt. The number of label values is bounded: for tools and prompts by catalogs, for other
 * labels by lists.
 */
export class Operations {
  readonly #durations: Durations
  readonly #servers: KnownOfServers
  /** The series of all operations except tool calls, by server, then by method and prompt. */
  readonly #lanes = new Map<string, Map<string, Lanes>>()

  constructor(durations: Durations, servers: KnownOfServers) {
    this.#durations = durations
    this.#servers = servers
  }

  /**
   * Returns the series of a tool. The caller must drop them together with the tool's other series. `tool`: the value of
   * its label.
   */
  ofTool(server: string, tool: string): Lanes {
    return this.#make(server, {
      mcp_method_name: 'tools/call',
      gen_ai_operation_name: EXECUTE_TOOL,
      gen_ai_tool_name: tool,
    })
  }

  /** Returns the series of a request other than a tool call. */
  of({ server, method, message }: Call): Lanes {
    const known = this.#lanes.get(server) ?? new Map<string, Lanes>()
    this.#lanes.set(server, known)
    if (method !== 'prompts/get') {
      const name = METHODS.has(method) ? method : OTHER_VALUE
      return keep(known, name, () => this.#make(server, { mcp_method_name: name }))
    }
    const { name } = paramsOf(message.value)
    const prompt = typeof name === 'string' ? name : OTHER
    const key = (value: string) => `prompts/get ${value}`
    const hasRoom = () => known.size < MOST_PROMPTS + METHODS.size && this.#servers.isPrompt(server, prompt)
    const label = known.has(key(prompt)) || hasRoom() ? prompt : OTHER
    return keep(known, key(label), () =>
      this.#make(server, {
        mcp_method_name: method,
        gen_ai_prompt_name: label === OTHER ? OTHER : labelValue(label),
      }),
    )
  }

  /**
   * Records the duration of an agent's request. If the request has a trace, it may become an exemplar with the time
   * `wallMs`.
   */
  served({ server }: Lanes, call: Call, outcome: Outcome, seconds: number, wallMs: number): void {
    const { record } = call
    const said = versionOf(call)
    const errorType = errorTypeOf(outcome) ?? ''
    server
      .of(errorType, codeIn(outcome), versionIn(said), isHit(record))
      .observe(seconds, record.traceId, wallMs)
  }

  /** Records the duration of an attempt at a server. */
  attempted({ client }: Lanes, call: Call, outcome: Outcome, seconds: number): void {
    const peer = this.#servers.peerOf(call, call.replica ?? call.record.replica)
    const faults = injectedFaults.of(call.record)
    const injected =
      faults?.some(
        ({ side, attempt, status }) =>
          status === 'applied' && side === 'upstream' && attempt === call.attempt,
      ) === true
    const errorType = errorTypeOf(outcome) ?? ''
    client.of(errorType, codeIn(outcome), versionIn(peer?.version), injected, peer).observe(seconds)
  }

  /**
   * Records the duration of an agent's ended session. `server`: the session's only server; undefined for all servers.
   */
  serverSessionOver(server: string | undefined, version: string, seconds: number, reason = ''): void {
    const labels = sessionLabels(server, version, reason)
    this.#durations.serverSessions.series({ ...unsaid, ...labels, ...networkOf() }).observe(seconds)
  }

  /** Records the duration of an ended session with a server. */
  clientSessionOver(server: string, peer: Peer, seconds: number, reason = ''): void {
    const labels = sessionLabels(server, peer.version, reason)
    this.#durations.clientSessions.series({ ...unsaid, ...labels, ...networkOf(peer) }).observe(seconds)
  }

  /** Removes all series of a server, or only of some tools. `tools`: the label values of the tools. */
  forget(server: string, tools?: ReadonlySet<string>): void {
    if (tools === undefined) this.#lanes.delete(server)
    for (const histogram of Object.values(this.#durations))
      histogram.forget(
        ({ breakwater_server, gen_ai_tool_name = '' }) =>
          breakwater_server === server && (tools === undefined || tools.has(gen_ai_tool_name)),
      )
  }

  #make(server: string, fixed: Readonly<Record<string, string>>): Lanes {
    const { serverOperations, clientOperations } = this.#durations
    const labels = { ...fixed, breakwater_server: server }
    return { server: new Lane(serverOperations, labels), client: new Lane(clientOperations, labels) }
  }
}

function sessionLabels(server = '', version: string | undefined, reason: string) {
  return { breakwater_server: server, mcp_protocol_version: versionIn(version), error_type: reason }
}

function keep<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const known = map.get(key) ?? make()
  map.set(key, known)
  return known
}

const versionIn = (said: string | undefined): string => (said !== undefined && VERSIONS.has(said) ? said : '')

/** Returns the code of a JSON-RPC error from a server, as text; empty for other outcomes. */
function codeIn(outcome: Outcome): string {
  if (outcome.kind !== 'answered' || outcome.verdict !== 'rpc_error') return ''
  return codeOf(outcome.result.value.error) ?? ''
}
