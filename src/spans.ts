import { version } from './identity.ts'
import type { Clock } from './mesh/clock.ts'
import type { GatewayGeneration } from './registry/generation.ts'
import type { Log } from './telemetry/log.ts'
import type { Metrics } from './telemetry/metrics.ts'
import type { TraceSettings } from './telemetry/schema.ts'
import { createTracing, type Peer, type Tracing } from './telemetry/tracing.ts'

export interface SpansParts {
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
    peerOf: (server, replica) => peerOf(current(), server, replica),
  })
}

/** How a replica is reached. */
function peerOf({ servers }: GatewayGeneration, name: string, replica = 0): Peer | undefined {
  const config = servers.get(name)?.config
  if (config === undefined) return undefined
  if (config.type === 'stdio') return { transport: 'pipe' }
  const { hostname, port, protocol } = new URL(config.urls[replica] ?? config.urls[0] ?? '')
  return { transport: 'tcp', address: hostname, port: Number(port || (protocol === 'https:' ? 443 : 80)) }
}
