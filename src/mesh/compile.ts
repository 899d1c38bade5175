import type { Call, Layer, Service } from './call.ts'
import { Chains } from './chains.ts'
import { ATTEMPT_BEFORE, order, type LayerName } from './order.ts'
import type { Effect, Kit, Policy } from './policy.ts'
import { scopeFor, type Target } from './scope.ts'
import { Settings, type Applied, type MeshConfig } from './settings.ts'

/** The policy set that needs no name. */
export const DEFAULT_SET = 'default'

/** The policies there are, by their name in the config. */
export type PolicyRegistry = Readonly<Partial<Record<LayerName, Pick<Policy<never>, 'build'>>>>

/** One line of a chain, as the admin API prints it. */
export interface ChainLink {
  readonly layer: string
  readonly config?: unknown
  /** `default`, the number of the override that decided, from 0, or the name of the set. */
  readonly from?: string
}

/** All policies of one generation, compiled. */
export interface Mesh {
  /** The chain for a call. Throws when there is no such set. */
  serviceFor(server: string, method: string, tool: string | undefined, set?: string): Service
  /** What that chain is made of, outermost first. */
  chainFor(server: string, method: string, tool: string | undefined, set?: string): readonly ChainLink[]
  /** What running a call again would do. */
  effectOf(call: Call): Effect
}

export interface MeshParts {
  readonly policies: PolicyRegistry
  readonly config: MeshConfig
  readonly kit: Kit
  /** What is known of a server. */
  readonly target: (server: string) => Target | undefined
  /** The call as another server has to get it; undefined when there is no such server. */
  readonly readdress: (call: Call, server: string, tool: string) => Call | undefined
  /** The outermost layer, which sees every outcome. */
  readonly observe: Layer
  /** Sees the outcome of every attempt. */
  readonly attempt: Layer
  /** Where faults work: above all policies, where they shake the agent, and below all, where policies contain them. */
  readonly faults: { readonly client: Layer; readonly upstream: Layer }
  /** The innermost service, which talks to an upstream. */
  readonly transport: Service
}

interface Chain {
  /** Everything under `observe`. */
  readonly inner: Service
  readonly service: Service
  readonly links: readonly ChainLink[]
  readonly effectOf: (call: Call) => Effect
}

/** Compiles a config into services. A chain is built when it is first asked for. */
export function compileMesh(parts: MeshParts): Mesh {
  const { policies, config, kit, target, observe, attempt, transport } = parts
  const settings = new Settings(config)
  const sets = [DEFAULT_SET, ...Object.keys(config.sets ?? {})]
  const known = new Map(sets.map((set) => [set, new Chains<Chain>()]))

  function build(set: string, server: string, tool: string | undefined, applied: Applied): Chain {
    const effect = settings.effectOf(applied)
    const overrides = tool === undefined ? settings.namesOf(applied) : undefined
    const scope = scopeFor({ set, server, tool, overrides, effect, target, detour })
    const links: ChainLink[] = [{ layer: 'observe' }]
    const layers: Layer[] = [parts.faults.client]
    for (const name of order) {
      if (name === ATTEMPT_BEFORE) layers.push(attempt)
      const policy = policies[name]
      const [chosen, from] = settings.of(name, set, applied)
      if (policy === undefined || chosen === undefined || chosen === false) continue
      layers.push(policy.build(chosen as never, kit, scope))
      links.push({ layer: name, config: chosen, from })
    }
    layers.push(parts.faults.upstream)
    links.push({ layer: 'transport' })
    const inner = layers.reduceRight<Service>((next, layer) => layer(next), transport)
    return { inner, service: observe(inner), links, effectOf: scope.effectOf }
  }

  function detour(set: string, call: Call, server: string, tool: string) {
    const readdressed = parts.readdress(call, server, tool)
    return readdressed && { call: readdressed, service: find(server, call.method, tool, set).inner }
  }

  function find(server: string, method: string, tool: string | undefined, set: string): Chain {
    const chains = known.get(set)
    if (chains === undefined) throw new Error(`there is no policy set "${set}"`)
    if (tool !== undefined && target(server)?.facts(tool) !== undefined)
      return chains.ofListed(server, tool, () =>
        build(set, server, tool, settings.appliedTo(server, method, tool)),
      )
    return chains.ofOther(
      { server, method, tool },
      () => settings.appliedTo(server, method, tool),
      (applied) => build(set, server, undefined, applied),
    )
  }

  return {
    serviceFor: (server, method, tool, set = DEFAULT_SET) => find(server, method, tool, set).service,
    chainFor: (server, method, tool, set = DEFAULT_SET) => find(server, method, tool, set).links,
    effectOf: (call) => find(call.server, call.method, call.tool, DEFAULT_SET).effectOf(call),
  }
}
