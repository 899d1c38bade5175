import type { Config } from '../config/schema/schema.ts'
import { DEFAULT_SET } from '../mesh/compile.ts'
import type { Live } from '../mesh/live.ts'
import type { StateKey } from '../mesh/policy.ts'
import { mayApply } from '../mesh/settings.ts'
import type { States } from '../mesh/state.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { lookForIdleGlobs } from '../registry/idle-globs.ts'
import { listKinds } from '../registry/kinds.ts'
import type { Agents } from './agents.ts'
import { compileGeneration, type GenerationParts } from './generation.ts'

interface ApplyConfigParts {
  readonly live: Live<GatewayGeneration>
  /** What generations are made of. */
  readonly parts: GenerationParts
  readonly state: States
  readonly agents: Agents
  /** Has what outlives generations go by the config that is in force now. */
  readonly follow: (config: Config) => void
}

/** Puts a config into force, with the servers in `renew` made anew. Throws, and changes nothing, when it does not compile. */
export function applyConfig(
  config: Config,
  renew: ReadonlySet<string>,
  { live, parts, state, agents, follow }: ApplyConfigParts,
): void {
  const before = live.current
  const after = compileGeneration(config, before, parts, renew)
  live.swap(after)
  agents.forgetLists()
  state.settle((key) => placed(after, key))
  for (const server of before.servers.values()) if (after.servers.get(server.name) !== server) server.retire()
  for (const [name, server] of after.servers) {
    if (before.servers.get(name) !== server) server.start()
    else server.reconfigure(config.mcpServers[name] ?? server.config)
  }
  for (const name of renew) void before.servers.get(name)?.close()
  follow(config)
  lookForIdleGlobs(parts.log, live)
  agents.endOrphans()
  if (!sameServers(before, after)) agents.tellChanged(listKinds)
}

/** A key of state with the replica that its endpoint is now; undefined when what it belongs to is there no more. */
function placed({ servers, config }: GatewayGeneration, key: StateKey): StateKey | undefined {
  if (key.set !== DEFAULT_SET && !Object.hasOwn(config.policies.sets, key.set)) return undefined
  // The gateway's own state has no server, and a server's no endpoint.
  if (key.server === '') return key
  const server = servers.get(key.server)
  if (key.overrides !== undefined && !mayApply(config.policies, key.server, key.overrides)) return undefined
  if (server === undefined || key.endpoint === undefined) return server && key
  const replica = server.endpoints.indexOf(key.endpoint)
  if (replica === -1) return undefined
  return replica === key.replica ? key : { ...key, replica }
}

function sameServers(a: GatewayGeneration, b: GatewayGeneration): boolean {
  return (
    a.servers.size === b.servers.size &&
    [...a.servers.values()].every((server) => b.servers.get(server.name) === server)
  )
}
