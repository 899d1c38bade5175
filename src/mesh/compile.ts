import type { Call, Layer, Service, Caller } from './call.ts'
import { ignore } from './cancel.ts'
import type { Effect, PolicyContext, Policy, FallbackCall, Scope, ToolDefinition } from './policy.ts'
import { type Applied, DEFAULT_SET, type MeshConfig, type Place, Settings } from './settings.ts'
import type { Millis } from './clock.ts'

/** The policies by their name in the config, outermost first. */
type PolicyRegistry = Readonly<
  Record<string, Pick<Policy<never>, 'build' | 'perAttempt' | 'followsTask' | 'divided' | 'unset'>>
>

/** A layer of a chain, as the admin API prints it. */
interface ChainLayer {
  readonly layer: string
  readonly config?: unknown
  /** The source of the settings: `default`, or for example `override 0` or `set cautious`. */
  readonly from?: string
}

/** All policies of a generation, compiled. */
export interface Mesh {
  /** Returns the chain for a call; `maker` is the tool whose task a request waits for. Throws for an unknown set. */
  serviceFor(server: string, method: string, tool: string | undefined, set?: string, maker?: string): Service
  /** Whether a policy set, or an arm of an experiment, has this name. */
  hasSet(set: string): boolean
  /** Returns the sets that a server's calls use: the unnamed set, and the arms that take calls of the server. */
  setsOf(server: string): readonly string[]
  /** Whether a policy is in force for a tool; without a tool, for any other request of the server. */
  has(policy: string, place: Place): boolean
  /** Returns the layers of the chain for a call, outermost first. */
  chainFor(server: string, method: string, tool: string | undefined, set?: string): readonly ChainLayer[]
  effectOf(call: Target): Effect
}

/** The destination of a call. */
type Target = Pick<Call, 'server' | 'method' | 'tool'>

/** The registry's facts about each server, by name; usually a map. */
export interface Targets {
  get(server: string): ServerFacts | undefined
}

interface MeshParts {
  readonly policies: PolicyRegistry
  readonly config: MeshConfig
  readonly context: PolicyContext
  readonly servers: Targets
  /** Returns the call rewritten for another server; undefined when there is no such server. */
  readonly readdress: (call: Call, server: string, tool: string) => Call | undefined
  /** The outermost layer; sees every outcome. */
  readonly observe: Layer
  /** Sees the outcome of every attempt. */
  readonly attempt: Layer
  /** Faults: `client` above all policies, to hit the agent; `upstream` below all, for policies to contain. */
  readonly faults: { readonly client: Layer; readonly upstream: Layer }
  /** The innermost service; talks to an upstream. */
  readonly transport: Service
}

interface Chain {
  /** The chain below the layer `observe`. */
  readonly inner: Service
  readonly service: Service
  readonly described: readonly ChainLayer[]
  readonly effectOf: (call: Target) => Effect
}

/** Compiles a config into services. Each chain is built on first use. */
export function compileMesh(parts: MeshParts): Mesh {
  const { policies, config, context, servers, observe, attempt, transport } = parts
  const settings = new Settings(config)
  const inOrder = Object.entries(policies)
  const ofCalls = inOrder.filter(([, { perAttempt }]) => perAttempt !== true)
  const ofAttempts = inOrder.filter(([, { perAttempt }]) => perAttempt === true)
  if (inOrder.slice(ofCalls.length).some(([, { perAttempt }]) => perAttempt !== true))
    throw new Error('per-attempt policies must be last in the registry')
  const sets = [DEFAULT_SET, ...Object.keys(config.sets ?? {}), ...settings.arms]
  const known = new Map(sets.map((set) => [set, new Chains<Chain>()]))

  function build(
    set: string,
    server: string,
    tool: string | undefined,
    applied: Applied,
    appliedToMaker = applied,
  ): Chain {
    const effect = settings.effectOf(applied)
    const overrides = tool === undefined ? settings.namesOf(applied) : undefined
    const scope = scopeFor({ set, server, tool, overrides, effect, servers, fallbackCall })
    const described: ChainLayer[] = [{ layer: 'observe' }]
    const layers: Layer[] = [parts.faults.client]
    const share = settings.shareOf(set, server)
    const add = ([name, policy]: [string, PolicyRegistry[string]]) => {
      const [whole, from] = settings.of(name, set, policy.followsTask === true ? appliedToMaker : applied)
      if (whole === undefined || whole === false) {
        const isSetIn = (other: string) => Boolean(settings.of(name, other, applied)[0])
        if (policy.unset !== undefined && settings.setsOf(server).some(isSetIn))
          layers.push(policy.unset(context, scope))
        return
      }
      const chosen = share < 1 ? (policy.divided?.(whole as never, share) ?? whole) : whole
      layers.push(policy.build(chosen as never, context, scope))
      described.push({ layer: name, config: chosen, from })
    }
    ofCalls.forEach(add)
    layers.push(attempt)
    ofAttempts.forEach(add)
    layers.push(parts.faults.upstream)
    described.push({ layer: 'transport' })
    const inner = layers.reduceRight<Service>((next, layer) => layer(next), transport)
    return { inner, service: observe(inner), described, effectOf: scope.effectOf }
  }

  function fallbackCall(set: string, call: Call, server: string, tool: string) {
    const readdressed = parts.readdress(call, server, tool)
    return (
      readdressed && {
        call: readdressed,
        service: find(server, call.method, tool, settings.setAt(set, server)).inner,
      }
    )
  }

  function find(
    server: string,
    method: string,
    tool: string | undefined,
    set: string,
    maker?: string,
  ): Chain {
    const chains = known.get(set)
    if (chains === undefined) throw new Error(`there is no policy set "${set}"`)
    if (tool !== undefined && servers.get(server)?.facts(tool) !== undefined)
      return chains.ofListed(server, tool, () =>
        build(set, server, tool, settings.appliedTo(server, method, tool)),
      )
    return chains.ofOther(
      { server, method, tool, maker },
      () => {
        const applied = settings.appliedTo(server, method, tool)
        return maker === undefined ? [applied] : [applied, settings.appliedTo(server, 'tools/call', maker)]
      },
      (applied, appliedToMaker) => build(set, server, undefined, applied, appliedToMaker),
    )
  }

  return {
    serviceFor: (server, method, tool, set = DEFAULT_SET, maker) =>
      find(server, method, tool, set, maker).service,
    hasSet: (set) => known.has(set),
    setsOf: (server) => settings.setsOf(server),
    has: (policy, place) => settings.has(policy, place),
    chainFor: (server, method, tool, set = DEFAULT_SET) => find(server, method, tool, set).described,
    effectOf: (call) => find(call.server, call.method, call.tool, DEFAULT_SET).effectOf(call),
  }
}

/** Most look-ups and chains to remember; beyond the limit, chains are built again. */
const REMEMBERED = 4096

/** Most chains of catalogued tools to keep per server. Higher, because agents cannot invent these names. */
const REMEMBERED_TOOLS = 50_000

/** Longest cache key to remember, in characters. Agents choose methods and names, so these may be huge. */
const LONGEST = 512

/** The parts of a call that select its chain. */
interface ChainKey {
  readonly server: string
  readonly method: string
  readonly tool: string | undefined
  readonly maker: string | undefined
}

/** The chains of a policy set, cached up to a limit. */
class Chains<Chain> {
  readonly #listed = new Map<string, Map<string, Chain>>()
  readonly #shared = new Map<string, Chain>()
  readonly #remembered = new Map<string, Chain>()

  /** Returns a catalogued tool's own chain. */
  ofListed(server: string, tool: string, build: () => Chain): Chain {
    let tools = this.#listed.get(server)
    if (tools === undefined) this.#listed.set(server, (tools = new Map<string, Chain>()))
    let chain = tools.get(tool)
    if (chain !== undefined) return chain
    chain = build()
    remember(tools, tool, chain, REMEMBERED_TOOLS)
    return chain
  }

  /**
   * Returns a chain that all calls with equal overrides share, because agents may ask for any number of tools that do
   * not exist. These calls also share the state of the chain's policies.
   */
  ofOther(
    { server, method, tool, maker }: ChainKey,
    appliedTo: () => readonly [Applied, Applied?],
    build: (...applied: readonly [Applied, Applied?]) => Chain,
  ): Chain {
    const mark = maker !== undefined ? '>' : tool === undefined ? ':' : '='
    const key = `${server}\n${method.length}${mark}${method}${maker ?? tool ?? ''}`
    let chain = this.#remembered.get(key)
    if (chain !== undefined) return chain
    const applied = appliedTo()
    const shared = `${server}\n${applied.join('>')}`
    chain = this.#shared.get(shared) ?? build(...applied)
    remember(this.#shared, shared, chain, REMEMBERED)
    if (key.length <= LONGEST) remember(this.#remembered, key, chain, REMEMBERED)
    return chain
  }
}

function remember<Chain>(chains: Map<string, Chain>, key: string, chain: Chain, most: number): void {
  if (chains.size >= most) chains.clear()
  chains.set(key, chain)
}

/** The registry's facts about a server. */
export interface ServerFacts {
  /** The identity of each replica's endpoint; at least one entry. */
  readonly endpoints: readonly string[]
  facts(tool: string): ToolDefinition | undefined
  /** Whether the server's list has a tool that agents may call. */
  offers(tool: string): boolean
  /** Returns the effect that the server declares for a tool, as far as the server is trusted. */
  effectOf(tool: string): Effect
  home(caller: Caller): number | undefined
  homes(caller: Caller): readonly number[] | undefined
  readonly mayMove: boolean
  leave(caller: Caller, replica: number): void
  backAt(replica: number): Millis
  isLost(replica: number): boolean
  reached(replica: number): Promise<boolean> | undefined
  hold(): () => void
}

export interface ScopeParts {
  readonly set: string
  readonly server: string
  readonly tool: string | undefined
  readonly overrides: readonly string[] | undefined
  /** The tool's effect according to the operator. */
  readonly effect: Effect | undefined
  readonly servers: Targets
  readonly fallbackCall: (set: string, call: Call, server: string, tool: string) => FallbackCall | undefined
}

/** The effects of requests other than tool calls, as the protocol defines them. */
const effects: ReadonlyMap<string, Effect> = new Map<string, Effect>(
  Object.entries({
    ping: 'read_only',
    initialize: 'read_only',
    'server/discover': 'read_only',
    'tools/list': 'read_only',
    'prompts/list': 'read_only',
    'prompts/get': 'read_only',
    'resources/list': 'read_only',
    'resources/templates/list': 'read_only',
    'resources/read': 'read_only',
    'completion/complete': 'read_only',
    'tasks/get': 'read_only',
    'tasks/list': 'read_only',
    'tasks/result': 'read_only',
    'tasks/cancel': 'idempotent',
    'logging/setLevel': 'idempotent',
    'resources/subscribe': 'idempotent',
    'resources/unsubscribe': 'idempotent',
  }),
)

/** Methods of the protocol that agents and the gateway send. */
export const methods: readonly string[] = [
  ...effects.keys(),
  'tools/call',
  'tasks/update',
  'subscriptions/listen',
]

/** The endpoint of an unknown server. */
const nowhere: readonly string[] = ['']

/** Returns a scope backed by the registry. */
export function scopeFor({ set, server, tool, overrides, effect, servers, fallbackCall }: ScopeParts): Scope {
  const endpoints = servers.get(server)?.endpoints ?? nowhere
  return {
    set,
    server,
    tool,
    overrides,
    replicas: endpoints.length,
    endpoints,
    facts: () => (tool === undefined ? undefined : servers.get(server)?.facts(tool)),
    effectOf(call) {
      if (call.tool === undefined) return effects.get(call.method) ?? 'unknown'
      return effect ?? servers.get(server)?.effectOf(call.tool) ?? 'unknown'
    },
    home: (caller) => servers.get(server)?.home(caller),
    homes: (caller) => servers.get(server)?.homes(caller),
    mayMove: () => servers.get(server)?.mayMove ?? true,
    leave: (caller, replica) => servers.get(server)?.leave(caller, replica),
    backAt: (replica) => servers.get(server)?.backAt(replica) ?? -Infinity,
    isLost: (replica) => servers.get(server)?.isLost(replica) ?? false,
    reached: (replica) => servers.get(server)?.reached(replica),
    hold: () => servers.get(server)?.hold() ?? ignore,
    isOffered: (to, other) => servers.get(to)?.offers(other) ?? false,
    fallbackCall: (call, to, other) => fallbackCall(set, call, to, other),
  }
}
