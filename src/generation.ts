import type { Chaos } from './chaos-wiring.ts'
import { configHash } from './config/hash.ts'
import type { Config, ServerConfig } from './config/schema/schema.ts'
import { ownHello } from './identity.ts'
import type { Call, Outcome, Service } from './mesh/call.ts'
import type { Clock } from './mesh/clock.ts'
import { compileMesh } from './mesh/compile.ts'
import { gatewayError } from './mesh/errors.ts'
import type { Kit } from './mesh/policy.ts'
import { policies } from './policies/index.ts'
import { readdress } from './registry/readdress.ts'
import type { GatewayGeneration } from './registry/generation.ts'
import type { KnownServerParts } from './registry/known-server.ts'
import { Names } from './registry/names.ts'
import { Server } from './registry/server.ts'
import { createAccessLog } from './telemetry/access-log.ts'
import type { Intents } from './telemetry/intents.ts'
import type { Log } from './telemetry/log.ts'
import type { Metrics } from './telemetry/metrics.ts'
import { observe } from './telemetry/observe.ts'
import { observeAttempt } from './telemetry/observe-attempt.ts'
import type { Tracing } from './telemetry/tracing.ts'
import { createUpstreams } from './upstreams/create.ts'

export interface GenerationParts extends Pick<KnownServerParts, 'onChanged' | 'onState'> {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
  /** Outlives all generations. */
  readonly kit: Kit
  readonly intents: Intents
  readonly tracing: Tracing
  readonly chaos: Pick<Chaos, 'layers' | 'account'>
}

/**
 * Compiles a config. Servers whose own config is the same are taken over from `previous`, with their
 * processes, connections and sessions; those in `renew` are made anew all the same.
 */
export function compileGeneration(
  config: Config,
  previous: GatewayGeneration | undefined,
  parts: GenerationParts,
  renew: ReadonlySet<string> = new Set(),
): GatewayGeneration {
  const servers = new Map<string, Server>()
  for (const [name, entry] of Object.entries(config.mcpServers)) {
    if (entry.disabled) continue
    const hash = configHash(entry)
    const old = renew.has(name) ? undefined : previous?.servers.get(name)
    servers.set(name, old?.hash === hash ? old : createServer(name, entry, hash, parts))
  }
  const isListed = (server: string, tool: string) => servers.get(server)?.facts(tool) !== undefined
  const accessLog = createAccessLog(config.telemetry.accessLog, parts)
  const seen = observe({ ...parts, isListed, accessLog, account: parts.chaos.account })
  const generation: GatewayGeneration = {
    config,
    hash: configHash(config),
    servers,
    names: new Names(config.gateway.separator),
    mesh: compileMesh({
      policies,
      config: config.policies,
      kit: parts.kit,
      target: (name) => servers.get(name),
      readdress: (call, name, tool) => readdress(call, servers.get(name), tool),
      observe: seen,
      attempt: observeAttempt({ ...parts, isListed }),
      faults: parts.chaos.layers,
      transport: transportTo(servers),
    }),
    close() {
      for (const server of servers.values()) server.release()
    },
  }
  for (const server of servers.values()) server.retain()
  return generation
}

function createServer(name: string, config: ServerConfig, hash: string, parts: GenerationParts): Server {
  const replicas = createUpstreams(name, config, { ...parts, hello: ownHello })
  return new Server({
    ...parts,
    name,
    config,
    hash,
    replicas,
    hello: ownHello,
    faults: parts.chaos.layers.discovery,
  })
}

/** The innermost service: a call goes to its server. */
function transportTo(servers: ReadonlyMap<string, Server>): Service {
  return (call: Call): Promise<Outcome> => {
    const server = servers.get(call.server)
    if (server !== undefined) return server.send(call)
    return Promise.resolve({
      kind: 'failed',
      error: gatewayError('upstream_unavailable', 'there is no such server'),
    })
  }
}
