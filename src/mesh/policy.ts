import type { Layer } from './call.ts'
import type { Clock } from './clock.ts'
import type { Dice } from './dice.ts'

/** Reads a policy's settings. zod types are such schemas; the kernel needs to know no more of them. */
export interface Schema<Config> {
  parse(input: unknown): Config
}

/** A rare change of state that somebody will want to read about; facts of a call go into its record. */
export interface MeshEvent {
  readonly type: string
  readonly server: string
  readonly tool?: string
  readonly detail?: Readonly<Record<string, unknown>>
}

/** State that outlives a generation, found again by a key that contains the hash of its own config. */
export interface StateStore {
  get<State>(key: string, create: () => State): State
}

/** All that a policy may touch besides its own config. */
export interface Kit {
  readonly clock: Clock
  readonly dice: Dice
  readonly state: StateStore
  emit(event: MeshEvent): void
}

/** A configurable rule: one file, one line in the registry, one test. */
export interface Policy<Config> {
  readonly schema: Schema<Config>
  /** Called once per generation and distinct config. */
  build(config: Config, kit: Kit): Layer
}
