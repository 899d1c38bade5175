import type { Call, Caller, Layer, Outcome, Service } from './call.ts'
import type { Clock, Millis } from './clock.ts'
import type { KeyedRandom } from './keyed-random.ts'
import type { PolicyReason } from './errors.ts'
import type { Decision, Fact } from './record.ts'
import type { MetricSpec } from './metric-spec.ts'

/** Reads a policy's settings. Every zod type is a schema in this sense; the kernel does not depend on zod. */
export interface Schema<Config> {
  parse(input: unknown): Config
}

/** A rare change of state that operators should see. Facts about single calls go into the call's record. */
export interface MeshEvent {
  readonly type: string
  /** The policy set, or the arm of an experiment, where the event happened. */
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
  readonly detail?: Readonly<Record<string, unknown>>
}

/** State that outlives a generation. */
export interface StateStore {
  /**
   * Returns the state under a key, creating the state on the first call. The store calls a state's `close()`, if any,
   * when no new call can find the state. It calls `moved(replica)`, if any, when the endpoint has another index in the
   * config.
   */
  get<State extends object>(key: StateKey, create: () => State): State
  /** Returns all states of a kind whose owner exists, most recently used last. */
  list<State extends object>(kind: string): readonly (readonly [StateKey, State])[]
}

/** Everything a policy may use besides its own config and scope. */
export interface PolicyContext {
  readonly clock: Clock
  readonly random: KeyedRandom
  readonly state: StateStore
  /** For data that must outlive the process; undefined without durable storage. */
  readonly durable?: DurableStore | undefined
  emit(event: MeshEvent): void
}

/** The effect of running a call again. Treat `unknown` as `write`. */
export type Effect = 'read_only' | 'idempotent' | 'write' | 'unknown'

/** A tool's description by its server, as found in the catalog. The same object until the description changes. */
export interface ToolDefinition {
  readonly inputSchema: unknown
  readonly outputSchema: unknown
  /** Changes with every change of the catalog entry. */
  readonly fingerprint: string
}

/** A call rewritten for another tool, and the chain that runs it. The chain does not count the call a second time. */
export interface FallbackCall {
  readonly call: Call
  readonly service: Service
}

/** The target of a chain of layers: a tool of a server, or all other requests of the server. */
export interface Scope {
  /** Name of the policy set; `default` is the unnamed set of the config. */
  readonly set: string
  readonly server: string
  /** The tool's name in the catalog; undefined for uncatalogued tools and for other requests. */
  readonly tool: string | undefined
  /**
   * For a scope without a tool: the `match` of each override that applies to its requests, as JSON. Requests with other
   * overrides have their own chain, perhaps with other settings. Undefined for a scope with a tool.
   */
  readonly overrides: readonly string[] | undefined
  /** Number of replicas of the server, at least 1. */
  readonly replicas: number
  /**
   * The identity of each replica's endpoint: a digest of everything that decides which endpoint is reached. Replica
   * state is stored under this identity, so the state follows the endpoint when replicas are added, removed or
   * reordered.
   */
  readonly endpoints: readonly string[]
  /** Returns the tool's current description; undefined when the tool is in no catalog. */
  facts(): ToolDefinition | undefined
  /** Returns the effect of running the call again, according to the operator, a trusted server or the call's method. */
  effectOf(call: Pick<Call, 'method' | 'tool'>): Effect
  /**
   * Returns the replica that holds state for a caller and must get all the caller's calls. Undefined: any replica may.
   */
  home(caller: Caller): number | undefined
  /**
   * Returns how many callers each replica holds state for; undefined when the server keeps no state for this caller.
   */
  homes(caller: Caller): readonly number[] | undefined
  /** Whether the gateway may silently replace a caller's session with a new session. */
  mayMove(): boolean
  /** Gives up a caller's state at a replica: the caller's next call opens a new session, at a replica chosen then. */
  leave(caller: Caller, replica: number): void
  /**
   * Returns when a lost replica was last found reachable again, on the monotonic clock; negative infinity without a
   * loss.
   */
  readonly backAt: (replica: number) => Millis
  /** Whether a replica is known to be unreachable now. */
  readonly isLost: (replica: number) => boolean
  /**
   * Resolves to true when the gateway's own probes reach a replica (starting to probe if necessary), and to false when
   * another server has replaced it. Returns undefined for a replica that the gateway does not probe.
   */
  readonly reached: (replica: number) => Promise<boolean> | undefined
  /**
   * Keeps the server for work that continues when no agent waits for it. The server stays, even after leaving the
   * config, until the returned function is called (once). A shutdown waits for the work as for calls: at most
   * `gateway.drain`.
   */
  hold(): () => void
  /** Whether a server's list has a tool that agents may call. */
  isOffered(server: string, tool: string): boolean
  /** Returns the call to another tool with the same arguments; undefined when there is no such server. */
  fallbackCall(call: Call, server: string, tool: string): FallbackCall | undefined
}

/** A type of `MeshEvent`. Events are always counted by type; an event type may declare a further counter here. */
export interface EventType {
  /** Describes the event in one line, for the documentation. */
  readonly about: string
  /** The labels `server`, `tool` and `arm` come from the event. */
  readonly counter?: MetricSpec<'counter'>
  /** Returns the labels of the counter besides `server`, `tool` and `arm`, which come from the event. */
  labels?(detail: Readonly<Record<string, unknown>>): Readonly<Record<string, string>>
  /** Whether the log shows the event as a warning. */
  isWarning?(detail: Readonly<Record<string, unknown>>): boolean
}

/** A state shown by the admin API as plain facts. */
export interface Observable {
  snapshot(): object
}

/** A single value of a gauge; the labels `server`, `tool` and `arm` come from the state. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** A kind of policy state, and how the admin API and metrics show it. */
export interface StateKind<State = unknown> {
  readonly kind: string
  /** True for states that report how much is still free, listed by `/admin/budgets`. The states are `Observable`. */
  readonly isBudget?: true
  /** The path of an operator whose list includes these states: see `Operator`. */
  readonly shownAt?: string
  /** Returns settings learned from the server's behaviour, and why; shown by `/admin/mesh`. */
  learned?(state: State): object
  /** Read at each scrape, from the states of unnamed policy sets and of arms; samples with equal labels add up. */
  readonly gauge?: {
    readonly metric: MetricSpec<'gauge'>
    /** Labels with a series at value 0 even without any state. */
    readonly always?: readonly Readonly<Record<string, string>>[]
    samples(state: State): readonly Sample[]
  }
}

/** The target of an operator's order: a tool in a policy set. */
export interface OperatorTarget {
  /** Undefined for all sets, arms of experiments included. */
  readonly set: string | undefined
  readonly server: string
  /** Undefined for a server's other requests. */
  readonly tool: string | undefined
}

/** An operator's order still in force, for the admin API. */
export interface Held {
  /** Undefined for a server's other requests. */
  readonly tool: string | undefined
  readonly [fact: string]: unknown
}

/**
 * The orders that an operator may give to a policy by hand. `GET /admin/{path}` lists the policy's states; `POST
 * /admin/{path}/{server}/{tool}` takes `{"action": …}`. An order stays in force until it is undone, across reloads and
 * changed settings, because the order is stored under a key without settings.
 */
export interface Operator<State extends Observable = Observable> {
  readonly path: string
  /** The kind of the listed states, and the everyday noun for a state. */
  readonly kind: string
  readonly noun: string
  readonly actions: readonly string[]
  /** Carries out an action. `states`: the target's present states; may be empty while an order is in force. */
  act(
    action: string,
    target: OperatorTarget,
    states: readonly State[],
    context: Pick<PolicyContext, 'state' | 'clock'>,
  ): void
  /** Applies to a state the orders that were given while the state's owner was not in the config. */
  catchUp(key: StateKey, state: State, store: StateStore): void
  /**
   * Returns the orders in force for a server in a set, also for tools without a state: one row of the admin API per
   * tool. `isInForce`: whether any set has the policy for a tool now.
   */
  held(
    set: string,
    server: string,
    store: StateStore,
    isInForce: (tool: string | undefined) => boolean,
  ): readonly Held[]
}

/**
 * A resilience policy with everything known about it: one module, one line in the registry, one test. Errors, metrics,
 * spans, the access log, the admin API, the config schema and the documentation are generated from these fields.
 */
export interface Policy<Config> {
  /** The policy's settings, with their documentation. */
  readonly schema: Schema<Config>
  /** When to use the policy and when not, in one or two sentences, for the documentation. */
  readonly use: string
  /** In force only where the config names the policy. Other policies are in force unless the config says `false`. */
  readonly optIn?: true
  /**
   * Whether the policy works on single attempts. These policies come last, and attempt observers see their outcomes.
   */
  readonly perAttempt?: true
  /** Whether `tasks/result` gets the settings of the tool that made the task: the agent waits for the same work. */
  readonly followsTask?: true
  /** Reasons for which the policy ends calls, besides the reasons known everywhere. */
  readonly reasons?: readonly PolicyReason[]
  readonly facts?: readonly Fact[]
  /** Returns the policy's decision about a call, if the outcome shows the decision. */
  decisionIn?(outcome: Outcome): Decision | undefined
  readonly events?: Readonly<Record<string, EventType>>
  readonly states?: readonly StateKind[]
  readonly operator?: Operator
  /**
   * Returns the layer for policy sets without this policy, on a server where another set has it. Only policies with an
   * `operator` need this.
   */
  unset?(context: PolicyContext, scope: Scope): Layer
  /**
   * Only for policies that limit a whole server: returns the settings for calls that get a `share` of the limit, in (0,
   * 1). The shares of all arms together never exceed the whole limit.
   */
  divided?(config: Config, share: number): unknown
  /**
   * Returns why these shares (sum 1) cannot divide the limit, in words; undefined when they can. Each part is at least
   * one call, so many parts may exceed the limit.
   */
  indivisible?(config: Config, shares: readonly number[]): string | undefined
  build(config: Config, context: PolicyContext, scope: Scope): Layer
}

/** The owner of a state. Keys that are equal in every part but `replica` name the same state, in every generation. */
export interface StateKey {
  /** The kind of state, usually the name of the policy that keeps it. */
  readonly kind: string
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
  /** The part of the server's other requests that the state covers; see `Scope.overrides`. */
  readonly overrides?: readonly string[] | undefined
  /** The endpoint of the server, at any position in the config; see `Scope.endpoints`. */
  readonly endpoint?: string | undefined
  /** The endpoint's current index in the config, from 0. For people only; not part of the state's identity. */
  readonly replica?: number | undefined
  /** The settings that the state was made for. Other settings start a new state. */
  readonly config?: unknown
}

export interface DurableRecord {
  readonly id: string
  /** The stored value, as `JSON.parse` returned it. */
  readonly value: unknown
  /** When the record expires, in milliseconds since the Unix epoch. */
  readonly expiresAt: Millis
}

/** The records of a single owner. No method throws or rejects: a failure to store never fails a call. */
export interface DurableRecords {
  /** Returns unexpired records of an earlier process, soonest to expire first. Returns each record once. */
  take(): readonly DurableRecord[]
  /**
   * Stores a record, replacing an earlier record with the same id. Resolves as soon as the record would survive a kill
   * of the process, or when it clearly cannot be stored now. `value` must be JSON; `expiresAt` is wall time in
   * milliseconds.
   */
  put(id: string, value: unknown, expiresAt: Millis): Promise<void>
  delete(id: string): void
}

export interface DurableStore {
  of(owner: Pick<StateKey, 'kind' | 'set' | 'server'>): DurableRecords
}
