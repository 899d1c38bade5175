import type { ServerConfig } from '../config/schema/schema.ts'
import type { Call } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { Live } from '../mesh/live.ts'
import { version } from '../protocol/identity.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Server } from '../registry/server.ts'
import type { Peer } from '../telemetry/conventions.ts'
import type { Log } from '../telemetry/log.ts'
import { createMetrics, type Metrics } from '../telemetry/metrics.ts'
import type { TraceSettings } from '../telemetry/schema.ts'
import { createTracing, tellIgnored, type Tracing } from '../telemetry/tracing.ts'
import { exporterVariables, type MetricsConfig, readMetricsSettings } from '../telemetry/tracing/settings.ts'
import { beginningOf, type Conceal, concealing, concealingGiven } from '../upstreams/server-words.ts'

interface SpansParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly env: Readonly<Record<string, string | undefined>>
  /** The settings at the start; a reload does not change them. */
  readonly config: TraceSettings
  /** The generation in force. Not read before the first generation is in force. */
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
}

/** Creates the tracing of the gateway; undefined when tracing is off. */
export function createSpans({
  clock,
  log,
  metrics,
  env,
  config,
  live,
}: SpansParts): Promise<Tracing | undefined> {
  return createTracing({
    clock,
    log,
    env,
    version,
    config,
    counts: {
      exported: (count) => metrics.spansExported.inc({}, count),
      dropped: (count, cause) => metrics.spansDropped.inc({ cause }, count),
    },
    isListed: (server, tool) => live.current.servers.get(server)?.facts(tool) !== undefined,
    peerOf: (call, replica) => peerOf(live.current.servers, call, replica),
    conceal: (call, text) => conceal(live.current.servers, call, text),
  })
}

interface DurationsParts {
  readonly env: Readonly<Record<string, string | undefined>>
  /** The settings at the start; a reload does not change them. */
  readonly config: MetricsConfig
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
}

/** Creates the metrics of a gateway. Counts metrics of OpenTelemetry's conventions only when exported or configured. */
export function createGatewayMetrics({ env, config, live }: DurationsParts): Metrics {
  const { semanticConventions } = config
  if (!semanticConventions && readMetricsSettings(env, config) === undefined) return createMetrics()
  return createMetrics({
    isPrompt: (server, prompt) =>
      live.current.servers
        .get(server)
        ?.entries('prompts')
        .some(({ key }) => key === prompt) === true,
    peerOf: (call, replica) => peerOf(live.current.servers, call, replica),
  })
}

/** Starts the export of metrics to a collector, if configured. Logs settings refused by the exporter. */
export async function exportMetrics({
  config,
  ...parts
}: Pick<SpansParts, 'clock' | 'log' | 'metrics' | 'env'> & { readonly config: MetricsConfig }): Promise<{
  close(): Promise<void>
}> {
  const none = { close: () => Promise.resolve() }
  const { env, log } = parts
  const settings = readMetricsSettings(env, config)
  if (settings === undefined) return none
  tellIgnored(settings, env, log)
  const { startMetricsExport } = await import('../telemetry/tracing/metrics-export.ts')
  try {
    return await startMetricsExport(settings, { ...parts, version })
  } catch (error) {
    // Logs only the error's name: its message may quote a bad setting, such as a header with a token.
    const { name } = error as Error
    const { protocol } = settings
    const variables = exporterVariables(env, 'METRICS')
    log.error(
      { error: name, protocol, variables },
      'no metrics are exported: the exporter refused its settings',
    )
    return none
  }
}

/**
 * Returns the transport and address of a replica, and the protocol version of the caller's upstream session with it.
 */
export function peerOf(servers: ReadonlyMap<string, Server>, call: Call, replica = 0): Peer | undefined {
  const server = servers.get(call.server)
  if (server === undefined) return undefined
  const { config, upstreamSessions } = server
  const known = peerAddressOf(config, replica)
  const said = upstreamSessions.current(call.caller, replica)?.upstreamSession.initializeResult.value
    .protocolVersion
  const version = typeof said === 'string' ? said : undefined
  if (version === undefined) return known
  const { transport, address, port } = known
  return { transport, address, port, version }
}

/** Addresses by config and replica, cached because parsing a URL takes as long as all other attributes of a span. */
const addresses = new WeakMap<ServerConfig, Map<number, Peer>>()

export function peerAddressOf(config: ServerConfig, replica: number): Peer {
  const known = addresses.get(config) ?? new Map<number, Peer>()
  const found = known.get(replica) ?? readAddress(config, replica)
  known.set(replica, found)
  addresses.set(config, known)
  return found
}

function readAddress(config: ServerConfig, replica: number): Peer {
  if (config.type === 'stdio') return { transport: 'pipe' }
  const { hostname, port, protocol } = new URL(config.urls[replica] ?? config.urls[0] ?? '')
  const known = Number(port || (protocol === 'https:' ? 443 : 80))
  // Removes the brackets of an IPv6 address, because OpenTelemetry's conventions have none.
  return { transport: 'tcp', address: hostname.replace(/^\[(.*)\]$/, '$1'), port: known }
}

/** Concealing functions by config, cached because finding all spellings of the secrets takes longer than a span. */
const concealings = new WeakMap<ServerConfig, Conceal>()

/** Returns the beginning of a server's text, without secrets of the config and of the call's headers. */
function conceal(servers: ReadonlyMap<string, Server>, { server, headers }: Call, text: string): string {
  const config = servers.get(server)?.config
  if (config === undefined) return ''
  const known = concealings.get(config) ?? concealing(config)
  concealings.set(config, known)
  const begun = concealingGiven({ named: headers ?? {} })
  return beginningOf(text, (words) => begun(known(words)))
}
