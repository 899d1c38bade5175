import type { Call, Caller, Layer, Outcome, Service } from './call.ts'
import type { Clock, Millis } from './clock.ts'
import type { KeyedRandom } from './keyed-random.ts'
import type { PolicyReason } from './errors.ts'
import type { Decision, Fact } from './record.ts'
import type { MetricSpec } from './metric-spec.ts'

/** Reads a policy's settings. zod types are such schemas; the kernel needs to know no more of them. */
export interface Schema<Config> {
  parse(input: unknown): Config
}

/** A rare change of state that somebody will want to read about; facts of a call go into its record. */
export interface MeshEvent {
  readonly type: string
  /** The policy set, or the arm of an experiment, in which it happened. */
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
  readonly detail?: Readonly<Record<string, unknown>>
}

/** State that outlives a generation. */
export interface StateStore {
  /**
   * The state under a key, created at the first asking. One with `close()` is told when nobody new will find it, and one
   * with `moved(replica)` when its endpoint stands elsewhere in the config.
   */
  get<State extends object>(key: StateKey, create: () => State): State
  /** All states of a kind whose owner is there, the most recently used last. */
  list<State extends object>(kind: string): readonly (readonly [StateKey, State])[]
}

/** All that a policy may touch besides its own config and its scope. */
export interface PolicyContext {
  readonly clock: Clock
  readonly random: KeyedRandom
  readonly state: StateStore
  /** For what has to outlive the process; undefined when there is nowhere to put it. */
  readonly durable?: DurableStore | undefined
  emit(event: MeshEvent): void
}

/** The effect of running a call again. Treat `unknown` as `write`. */
export type Effect = 'read_only' | 'idempotent' | 'write' | 'unknown'

/** The description of a tool by its server, as it stands in the catalog. The same object as long as nothing has changed. */
export interface ToolDefinition {
  readonly inputSchema: unknown
  readonly outputSchema: unknown
  /** Changes when anything in the entry does. */
  readonly fingerprint: string
}

/** A call in the words of another tool, and the chain for it, which does not count as a call of its own. */
export interface FallbackCall {
  readonly call: Call
  readonly service: Service
}

/** The target of one chain of layers: a tool of a server, or all its other requests. */
export interface Scope {
  /** Name of the policy set; `default` is the one without a name in the config. */
  readonly set: string
  readonly server: string
  /** The tool's name as its catalog has it; undefined for tools that stand in no catalog and for other requests. */
  readonly tool: string | undefined
  /**
   * Without a tool: which requests, by the overrides that apply to them, of each what it matches as JSON. Requests to which
   * others apply have a chain of their own, and may have other settings. Undefined where the tool says it all.
   */
  readonly overrides: readonly string[] | undefined
  /** How many replicas the server has, at least 1. */
  readonly replicas: number
  /**
   * For each replica the identity of its endpoint: a digest of all that decides what is reached there. The state of a
   * replica is kept under this identity, so that the state follows the endpoint when replicas come, go or change places.
   */
  readonly endpoints: readonly string[]
  /** Returns the tool's description as the catalog has it now; undefined when the tool is in no catalog. */
  facts(): ToolDefinition | undefined
  /** Returns the effect of running the call again, by the operator's word, a trusted server's, or the call's method. */
  effectOf(call: Pick<Call, 'method' | 'tool'>): Effect
  /** The replica that holds state for a caller, and thus has to get all its calls; undefined: any may. */
  home(caller: Caller): number | undefined
  /** How many callers each replica holds state for; undefined when the server holds none for such a caller. */
  homes(caller: Caller): readonly number[] | undefined
  /** Whether callers may get another session in place of theirs, without a word. */
  mayMove(): boolean
  /** Gives a caller's state at a replica up: its next call begins a new session, at a replica that is chosen then. */
  leave(caller: Caller, replica: number): void
  /**
   * When a replica that could not be reached was last found to be reachable again, on the monotonic clock; negative
   * infinity when it never was in doubt.
   */
  readonly backAt: (replica: number) => Millis
  /** Whether a replica is known to be out of reach now. */
  readonly isLost: (replica: number) => boolean
  /**
   * Resolves to true when the gateway's own probes get through to a replica, which it begins to probe if need be; to false when another
   * server has come in its place. Undefined for a replica that only calls can try.
   */
  readonly reached: (replica: number) => Promise<boolean> | undefined
  /**
   * For work that goes on when no agent waits for it any more: until what this returns is called, once, the server stays
   * though it may have left the config, and the end of the process waits, for as long as it waits for calls.
   */
  hold(): () => void
  /** Whether the list of a server has a tool, which agents may call. */
  isOffered(server: string, tool: string): boolean
  /** The way to another tool, with the same arguments; undefined when there is no such server. */
  fallbackCall(call: Call, server: string, tool: string): FallbackCall | undefined
}

/** A type of `MeshEvent`: how often it comes is always counted by type; here is what else there is to count. */
export interface EventType {
  /** A description of the event, in one line, for the documentation. */
  readonly about: string
  /** The labels `server`, `tool` and `arm` are the event's. */
  readonly counter?: MetricSpec<'counter'>
  /** Its other labels. */
  labels?(detail: Readonly<Record<string, unknown>>): Readonly<Record<string, string>>
  /** Whether it is a warning in the log. */
  isWarning?(detail: Readonly<Record<string, unknown>>): boolean
}

/** A state that the admin API can show, as plain facts. */
export interface Observable {
  snapshot(): object
}

/** One value of a gauge; the labels `server`, `tool` and `arm` are those of the state. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** A kind of state that a policy keeps, as it is shown. */
export interface StateKind<State = unknown> {
  readonly kind: string
  /** Whether it says how much is still free: then `/admin/budgets` lists it. Its states are `Observable`. */
  readonly isBudget?: true
  /** The path of an operator that lists its states too: see `Operator`. */
  readonly shownAt?: string
  /** Settings of its policy that follow what a server has been like, and why: shown by `/admin/mesh`. */
  learned?(state: State): object
  /** Read at each scrape, from the states of the policies without a name and of arms; equal labels add up. */
  readonly gauge?: {
    readonly metric: MetricSpec<'gauge'>
    /** Labels that have a series at value 0 also while there is no state. */
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

/** An operator's order that still holds, as the admin API shows it. */
export interface Held {
  /** Undefined for a server's other requests. */
  readonly tool: string | undefined
  readonly [fact: string]: unknown
}

/**
 * The orders that an operator may give to a policy by hand. `GET /admin/{path}` lists the policy's states;
 * `POST /admin/{path}/{server}/{tool}` takes `{"action": …}`. An order stays in force until it is undone, over reloads
 * and other settings: the order is kept in a state of its own, whose key holds no settings.
 */
export interface Operator<State extends Observable = Observable> {
  readonly path: string
  /** The kind of the states that it is about, and what people call one of them. */
  readonly kind: string
  readonly noun: string
  readonly actions: readonly string[]
  /** `states`: those that the target has now; there may be none of a target that is held. */
  act(
    action: string,
    target: OperatorTarget,
    states: readonly State[],
    context: Pick<PolicyContext, 'state' | 'clock'>,
  ): void
  /** Does to a state the orders that were given while its owner was gone. */
  catchUp(key: StateKey, state: State, store: StateStore): void
  /**
   * The orders that still hold for a server in a set, whether there are states or not: a row of the admin API for each tool.
   * `isInForce`: whether any set has the policy for a tool now.
   */
  held(
    set: string,
    server: string,
    store: StateStore,
    isInForce: (tool: string | undefined) => boolean,
  ): readonly Held[]
}

/**
 * A resilience policy, and all that is known of it anywhere: one module, one line in the registry, one test. Errors, metrics,
 * spans, the access log, the admin API, the config schema and the documentation are made of what stands here.
 */
export interface Policy<Config> {
  /** Its settings, with their documentation. */
  readonly schema: Schema<Config>
  /** When to use it and when not, in one or two sentences, for the documentation. */
  readonly use: string
  /** In force only where the config names it; the others are in force unless it says `false`. */
  readonly optIn?: true
  /** Whether it is about single attempts: these policies stand last, and observers of attempts see what they make of one. */
  readonly perAttempt?: true
  /** Whether `tasks/result` has the settings of a call of the tool that made the task: the agent waits there for what such a call does. */
  readonly followsTask?: true
  /** Reasons for which it ends calls, beside those that are known everywhere. */
  readonly reasons?: readonly PolicyReason[]
  /** The facts that the policy notes on calls. */
  readonly facts?: readonly Fact[]
  /** Returns the policy's decision about a call, where the outcome shows the decision. */
  decisionIn?(outcome: Outcome): Decision | undefined
  /** The events that it emits, by type. */
  readonly events?: Readonly<Record<string, EventType>>
  readonly states?: readonly StateKind[]
  readonly operator?: Operator
  /** Returns the layer for an arm without the policy, beside arms with it. Only policies with an `operator` need one. */
  unset?(context: PolicyContext, scope: Scope): Layer
  /**
   * Only of policies that limit what a whole server gets: the settings under which calls get that share of it, in (0, 1).
   * So the arms of an experiment together never get more than the server had before.
   */
  divided?(config: Config, share: number): unknown
  /** Why the limit cannot be divided by these shares, which are 1 together: each part is one call at least, and all together would be more. */
  indivisible?(config: Config, shares: readonly number[]): string | undefined
  /** Called once per generation, scope and distinct config. */
  build(config: Config, context: PolicyContext, scope: Scope): Layer
}

/** The owner of a state. Two keys that are equal in every part but `replica` mean the same state, in every generation. */
export interface StateKey {
  /** The kind of state: as a rule, the name of the policy that keeps the state. */
  readonly kind: string
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
  /** The part of the server's other requests that the state is about; see `Scope.overrides`. */
  readonly overrides?: readonly string[] | undefined
  /** The endpoint of the server, wherever the endpoint stands in the config; see `Scope.endpoints`. */
  readonly endpoint?: string | undefined
  /** Where that endpoint stands in the config now, from 0: for people, and no part of what makes the state the same. */
  readonly replica?: number | undefined
  /** The settings that made it: others begin anew. */
  readonly config?: unknown
}

/** A record that an earlier process left. */
export interface DurableRecord {
  readonly id: string
  /** As `JSON.parse` read it. */
  readonly value: unknown
  /** When it counts no more, in milliseconds since the Unix epoch. */
  readonly expiresAt: Millis
}

/** The records of one owner. Nothing here throws or rejects: a call never fails for what could not be kept. */
export interface DurableRecords {
  /** Returns the records of an earlier process that still count, the soonest to expire first. Returns each record once. */
  take(): readonly DurableRecord[]
  /**
   * Keeps a record, in place of an earlier one of its id. Resolves as soon as it would outlive a kill of the process,
   * or when it is clear that it cannot be kept now. `value` has to be JSON; `expiresAt` is wall time, in milliseconds.
   */
  put(id: string, value: unknown, expiresAt: Millis): Promise<void>
  delete(id: string): void
}

/** Where records outlive the process. */
export interface DurableStore {
  of(owner: Pick<StateKey, 'kind' | 'set' | 'server'>): DurableRecords
}
