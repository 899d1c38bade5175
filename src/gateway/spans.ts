import type { ServerConfig } from '../config/schema/schema.ts'
import type { Call } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { version } from '../protocol/identity.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { TraceSettings } from '../telemetry/schema.ts'
import { createTracing, type Peer, type Tracing } from '../telemetry/tracing.ts'

interface SpansParts {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  readonly env: Readonly<Record<string, string | undefined>>
  /** As it was at boot. */
  readonly config: TraceSettings
  /** The generation in force; not asked for before there is one. */
  readonly current: () => GatewayGeneration
}

/** Ties tracing to the gateway: what spans say of servers, and what becomes of spans. */
export function createSpans({ clock, log, metrics, env, config, current }: SpansParts): Promise<Tracing> {
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
    isListed: (server, tool) => current().servers.get(server)?.facts(tool) !== undefined,
    peerOf: (call, replica) => peerOf(current(), call, replica),
  })
}

/** How a replica is reached, and in which version its caller's upstream session with it goes on. */
function peerOf({ servers }: GatewayGeneration, call: Call, replica = 0): Peer | undefined {
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

/** By config: to read a URL costs as much as all else that a span says. */
const addresses = new WeakMap<ServerConfig, Map<number, Peer>>()

function peerAddressOf(config: ServerConfig, replica: number): Peer {
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
  // URLs write IPv6 addresses in brackets; conventions do not.
  return { transport: 'tcp', address: hostname.replace(/^\[(.*)\]$/, '$1'), port: known }
}
