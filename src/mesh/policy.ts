import type { Call, Caller, Layer, Service } from './call.ts'
import type { Clock, Millis } from './clock.ts'
import type { Dice } from './dice.ts'
import type { DurableStore } from './durable.ts'
import type { StateKey } from './state-key.ts'

export type { StateKey } from './state-key.ts'

/** Reads a policy's settings. zod types are such schemas; the kernel needs to know no more of them. */
export interface Schema<Config> {
  parse(input: unknown): Config
}

/** A rare change of state that somebody will want to read about; facts of a call go into its record. */
export interface MeshEvent {
  readonly type: string
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
export interface Kit {
  readonly clock: Clock
  readonly dice: Dice
  readonly state: StateStore
  /** For what has to outlive the process; undefined when there is nowhere to put it. */
  readonly durable?: DurableStore | undefined
  emit(event: MeshEvent): void
}

/** What running a call again would do. `unknown` is to be treated as `write`. */
export type Effect = 'read_only' | 'idempotent' | 'write' | 'unknown'

/** What its server says of a tool, as it stands in the catalog. The same object as long as nothing has changed. */
export interface ToolFacts {
  readonly inputSchema: unknown
  readonly outputSchema: unknown
  /** Changes when anything in the entry does. */
  readonly fingerprint: string
}

/** A call in the words of another tool, and the chain for it, which does not count as a call of its own. */
export interface Detour {
  readonly call: Call
  readonly service: Service
}

/** What one chain of layers is for: a tool of a server, or all its other requests. */
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
   * For each replica the identity of its endpoint: a digest of all that decides what is reached there. What is remembered
   * of a replica is remembered under it, so that it follows the endpoint when replicas come, go or change places.
   */
  readonly endpoints: readonly string[]
  /** What is known of the tool now; undefined when it is in no catalog. */
  facts(): ToolFacts | undefined
  /** What running the call again would do, by the operator's word, a trusted server's, or its method. */
  effectOf(call: Call): Effect
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
  /**
   * For work that goes on when no agent waits for it any more: until what this returns is called, once, the server stays
   * though it may have left the config, and the end of the process waits, for as long as it waits for calls.
   */
  hold(): () => void
  /** The way to another tool, with the same arguments; undefined when there is no such server. */
  detour(call: Call, server: string, tool: string): Detour | undefined
}

/** A configurable rule: one file, one line in the registry, one test. */
export interface Policy<Config> {
  readonly schema: Schema<Config>
  /** In force only where the config names it; the others are in force unless it says `false`. */
  readonly optIn?: true
  /** Called once per generation, scope and distinct config. */
  build(config: Config, kit: Kit, scope: Scope): Layer
}
