import { matcher, type Match, type Matcher } from './match.ts'
import type { Effect } from './policy.ts'

/** The name of the unnamed policy set. */
export const DEFAULT_SET = 'default'

/** Settings by policy name; `false` switches a policy off. */
export type PolicySettings = Readonly<Record<string, unknown>>

export interface Override extends PolicySettings {
  readonly match: Match
  /** The effect of running a tool again, according to the operator. */
  readonly effect?: Effect | undefined
}

export interface MeshConfig {
  readonly defaults: PolicySettings
  /** When several overrides set the same policy, the last override wins. */
  readonly overrides: readonly Override[]
  /** Named alternatives: a set's settings win over defaults and overrides. */
  readonly sets?: Readonly<Record<string, PolicySettings>>
  /** The arms of running experiments, by name. */
  readonly arms?: Readonly<Record<string, ArmSettings>>
}

/** A policy set for some calls of some servers, with state of its own. */
export interface ArmSettings {
  /** The set that provides the arm's settings, named or not. */
  readonly set: string
  /** Whether the arm takes calls of a server. */
  readonly takes: (server: string) => boolean
  /** The arm's part of each limit for a whole server, in (0, 1). Calls in no arm share the rest. */
  readonly share: number
}

/** A tool of a server in a policy set; without a tool, the server's other requests. */
export interface Place {
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
}

/** The overrides that apply to some calls, as indexes into the config. */
export type Applied = readonly number[]

/** Finds the settings in force for calls. */
export class Settings {
  readonly #defaults: PolicySettings
  readonly #overrides: readonly Override[]
  readonly #holds: readonly Matcher[]
  readonly #sets: ReadonlyMap<string, PolicySettings>
  readonly #arms: ReadonlyMap<string, ArmSettings>

  constructor({ defaults, overrides, sets = {}, arms = {} }: MeshConfig) {
    this.#defaults = defaults
    this.#overrides = overrides
    this.#holds = overrides.map(({ match }) => matcher(match))
    this.#sets = new Map(Object.entries(sets))
    this.#arms = new Map(Object.entries(arms))
  }

  get arms(): Iterable<string> {
    return this.#arms.keys()
  }

  /**
   * Returns the set that calls in `set` use at `server`. For an arm that does not take this server's calls, that is the
   * default set.
   */
  setAt(set: string, server: string): string {
    return this.#arms.get(set)?.takes(server) === false ? DEFAULT_SET : set
  }

  /** Returns the sets that calls of a server use now: the unnamed set, and the arms that take its calls. */
  setsOf(server: string): readonly string[] {
    return [DEFAULT_SET, ...this.#arms.keys()].filter((set) => this.setAt(set, server) === set)
  }

  /** Whether a set has a policy for a tool of a server; without a tool, for any of the server's other requests. */
  has(name: string, { set, server, tool }: Place): boolean {
    const cases = tool === undefined ? this.#othersOf(server) : [this.appliedTo(server, 'tools/call', tool)]
    return cases.some((applied) => Boolean(this.of(name, set, applied)[0]))
  }

  /**
   * Returns the combinations of overrides that a server's requests without a tool may have. The first combination
   * applies to all requests; each further combination adds one override that applies to some requests.
   */
  #othersOf(server: string): readonly Applied[] {
    const numbers = [...this.#overrides.keys()]
    const matchOf = (index: number) => this.#overrides[index]?.match ?? {}
    const toAll = numbers.filter((index) => isForAll(matchOf(index), server))
    const toSome = numbers.filter(
      (index) =>
        !toAll.includes(index) && isForAll({ ...matchOf(index), tool: undefined, method: undefined }, server),
    )
    return [
      toAll,
      ...toSome.map((some) => numbers.filter((index) => index === some || toAll.includes(index))),
    ]
  }

  /** Returns the part of a server's capacity that belongs to a set or an arm, in (0, 1]. */
  shareOf(set: string, server: string): number {
    const arm = this.#arms.get(set)
    if (arm !== undefined) return arm.share
    let left = 1
    for (const { takes, share } of this.#arms.values()) if (takes(server)) left -= share
    return left
  }

  appliedTo(server: string, method: string, tool: string | undefined): Applied {
    return this.#holds.flatMap((holds, index) => (holds(server, method, tool) ? [index] : []))
  }

  /** Returns names of overrides, made from `match`, so that a name survives a move within the config. */
  namesOf(applied: Applied): readonly string[] {
    return applied.map((index) => nameOf(this.#overrides[index]?.match))
  }

  /** Returns the effect of running a tool again, according to the operator. */
  effectOf(applied: Applied): Effect | undefined {
    const decisive = applied.findLast((index) => this.#overrides[index]?.effect !== undefined)
    return decisive === undefined ? undefined : this.#overrides[decisive]?.effect
  }

  /** Returns a policy's settings in a set or arm, and their source: `default`, `override 0` or `set cautious`. */
  of(name: string, set: string, applied: Applied): [settings: unknown, from: string] {
    const base = this.#arms.get(set)?.set ?? set
    const alternative = this.#sets.get(base) ?? {}
    if (name in alternative) return [alternative[name], `set ${base}`]
    const decisive = applied.findLast((index) => name in (this.#overrides[index] ?? {}))
    if (decisive === undefined) return [this.#defaults[name], 'default']
    return [this.#overrides[decisive]?.[name], `override ${decisive}`]
  }
}

function nameOf(match: Match | undefined): string {
  return JSON.stringify(match)
}

/** Whether exactly these overrides may apply to some request of a server, without a tool, in this config. */
export function mayApply({ overrides }: MeshConfig, server: string, names: readonly string[]): boolean {
  const there = new Set(overrides.map(({ match }) => nameOf(match)))
  const toAll = overrides.filter(({ match }) => isForAll(match, server))
  return names.every((name) => there.has(name)) && toAll.every(({ match }) => names.includes(nameOf(match)))
}

/** Whether all requests of a server match. */
export function isForAll({ tool, method, ...match }: Match, server: string): boolean {
  return tool === undefined && method === undefined && matcher(match)(server, '', undefined)
}
