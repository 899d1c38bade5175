import { matcher, type Match, type Matcher } from './match.ts'
import type { Effect } from './policy.ts'

/** The policy set that needs no name. */
export const DEFAULT_SET = 'default'

/** Settings by policy name; `false` switches a policy off. */
export type PolicySettings = Readonly<Record<string, unknown>>

export interface Override extends PolicySettings {
  readonly match: Match
  /** The effect of running a tool again, by the operator's word. */
  readonly effect?: Effect | undefined
}

export interface MeshConfig {
  readonly defaults: PolicySettings
  /** Later entries win, policy by policy. */
  readonly overrides: readonly Override[]
  /** Named alternatives: what a set says of a policy wins over defaults and overrides. */
  readonly sets?: Readonly<Record<string, PolicySettings>>
  /** The arms of the experiments that run, by name. */
  readonly arms?: Readonly<Record<string, ArmSettings>>
}

/** A policy set that some calls of some servers go by, with state of its own. */
export interface ArmSettings {
  /** The set whose settings the arm has: a named set, or the set without a name. */
  readonly set: string
  /** Whether the arm takes calls of a server. */
  readonly takes: (server: string) => boolean
  /** The arm's part of each limit for a whole server, in (0, 1). The rest of the limit belongs to the calls that are in no arm. */
  readonly share: number
}

/** A tool of a server, or without one the server's other requests, in a policy set. */
export interface Place {
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
}

/** Overrides that apply to some calls, by their numbers in the config, from 0. */
export type Applied = readonly number[]

/** Tells where each of a config's settings is in force. */
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

  /** The names of the arms. */
  get arms(): Iterable<string> {
    return this.#arms.keys()
  }

  /**
   * Returns the set for calls that come to a server by way of another server. An arm does not extend to servers of
   * which it takes no calls.
   */
  setAt(set: string, server: string): string {
    return this.#arms.get(set)?.takes(server) === false ? DEFAULT_SET : set
  }

  /** The sets that calls of a server go by now: the one without a name, and the arms that take its calls. */
  setsOf(server: string): readonly string[] {
    return [DEFAULT_SET, ...this.#arms.keys()].filter((set) => this.setAt(set, server) === set)
  }

  /** Whether a set has a policy for a tool of a server; without a tool, for any of the server's other requests. */
  has(name: string, { set, server, tool }: Place): boolean {
    const cases = tool === undefined ? this.#othersOf(server) : [this.appliedTo(server, 'tools/call', tool)]
    return cases.some((applied) => Boolean(this.of(name, set, applied)[0]))
  }

  /** The overrides for all requests of a server; and for each further one that may apply to some, these with it. */
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

  /** Names overrides by what they match: as long as a config has them, wherever they stand in it. */
  namesOf(applied: Applied): readonly string[] {
    return applied.map((index) => nameOf(this.#overrides[index]?.match))
  }

  /** The operator's word on what running a tool again does. */
  effectOf(applied: Applied): Effect | undefined {
    const decisive = applied.findLast((index) => this.#overrides[index]?.effect !== undefined)
    return decisive === undefined ? undefined : this.#overrides[decisive]?.effect
  }

  /** Returns the settings of a policy in a set, and their source: `default`, `override 0` or `set cautious`. `set` may be an arm. */
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

/** Whether a config has requests of a server, without a tool, to which just these overrides apply. */
export function mayApply({ overrides }: MeshConfig, server: string, names: readonly string[]): boolean {
  const there = new Set(overrides.map(({ match }) => nameOf(match)))
  const toAll = overrides.filter(({ match }) => isForAll(match, server))
  return names.every((name) => there.has(name)) && toAll.every(({ match }) => names.includes(nameOf(match)))
}

/** Whether all requests of a server match. */
export function isForAll({ tool, method, ...match }: Match, server: string): boolean {
  return tool === undefined && method === undefined && matcher(match)(server, '', undefined)
}
