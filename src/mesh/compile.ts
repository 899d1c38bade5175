import type { Layer, Service } from './call.ts'
import { matcher, type Match } from './match.ts'
import type { Kit, Policy } from './policy.ts'

/**
 * The order of policies, outermost first: the one place where it is written. The deadline covers all
 * attempts; backoff holds no bulkhead slot; nothing inside the breaker can reject; the breaker sees
 * each attempt with its verdict. A name without a registered policy is skipped.
 */
export const order = [
  'deadline',
  'degrade',
  'retry',
  'rateLimit',
  'bulkhead',
  'route',
  'breaker',
  'attemptTimeout',
  'verdict',
] as const

export type LayerName = (typeof order)[number]

/** The policies there are, by their name in the config. */
export type PolicyRegistry = Readonly<Partial<Record<LayerName, Pick<Policy<never>, 'build'>>>>

/** Settings by policy name; `false` switches a policy off. */
export type PolicySettings = Readonly<Partial<Record<LayerName, unknown>>>

export interface MeshConfig {
  readonly defaults: PolicySettings
  /** Later entries win, policy by policy. */
  readonly overrides: readonly ({ readonly match: Match } & PolicySettings)[]
}

/** One line of a chain, as the admin API prints it. */
export interface ChainLink {
  readonly layer: string
  readonly config?: unknown
  /** `default`, or the number of the override that decided, from 0. */
  readonly from?: string
}

/** All policies of one generation, compiled. */
export interface Mesh {
  /** The chain for a call; the same settings share one service. */
  serviceFor(server: string, method: string, tool: string | undefined): Service
  /** What that chain is made of, outermost first. */
  chainFor(server: string, method: string, tool: string | undefined): readonly ChainLink[]
}

export interface MeshParts {
  readonly policies: PolicyRegistry
  readonly config: MeshConfig
  readonly kit: Kit
  /** The outermost layer, which sees every outcome. */
  readonly observe: Layer
  /** The innermost service, which talks to an upstream. */
  readonly transport: Service
}

/** How many look-ups and chains are remembered; past it they are worked out again. */
const REMEMBERED = 4096

/** Longest look-up that is remembered, in characters: agents choose methods and names, and may choose huge ones. */
const LONGEST = 512

interface Chain {
  readonly service: Service
  readonly links: readonly ChainLink[]
}

/** Compiles a config into services. Everything is built at the first use of a distinct set of overrides. */
export function compileMesh({ policies, config, kit, observe, transport }: MeshParts): Mesh {
  const overrides = config.overrides.map(({ match, ...settings }) => ({ holds: matcher(match), settings }))
  const chains = new Map<string, Chain>()
  const remembered = new Map<string, Chain>()

  function build(applied: readonly number[]): Chain {
    const links: ChainLink[] = [{ layer: 'observe' }]
    const layers: Layer[] = [observe]
    for (const name of order) {
      const policy = policies[name]
      if (policy === undefined) continue
      const decisive = applied.findLast((index) => name in (overrides[index]?.settings ?? {}))
      const settings = decisive === undefined ? config.defaults[name] : overrides[decisive]?.settings[name]
      if (settings === undefined || settings === false) continue
      layers.push(policy.build(settings as never, kit))
      links.push({
        layer: name,
        config: settings,
        from: decisive === undefined ? 'default' : `override ${decisive}`,
      })
    }
    links.push({ layer: 'transport' })
    return { service: layers.reduceRight<Service>((next, layer) => layer(next), transport), links }
  }

  function find(server: string, method: string, tool: string | undefined): Chain {
    const key = `${server}\n${method.length}${tool === undefined ? ':' : '='}${method}${tool ?? ''}`
    let chain = remembered.get(key)
    if (chain !== undefined) return chain
    const applied = overrides.flatMap(({ holds }, index) => (holds(server, method, tool) ? [index] : []))
    const set = applied.join()
    chain = chains.get(set) ?? build(applied)
    remember(chains, set, chain)
    if (key.length <= LONGEST) remember(remembered, key, chain)
    return chain
  }

  return {
    serviceFor: (server, method, tool) => find(server, method, tool).service,
    chainFor: (server, method, tool) => find(server, method, tool).links,
  }
}

function remember(chains: Map<string, Chain>, key: string, chain: Chain): void {
  if (chains.size >= REMEMBERED) chains.clear()
  chains.set(key, chain)
}
