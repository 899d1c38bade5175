import { type Glob, glob, globsMeet } from '../mesh/match.ts'
import type { ArmSettings } from '../mesh/settings.ts'
import { armName, type Experiment, splitOf } from './schema.ts'

/**
 * Share of a server's limits, such as slots, for all arms together; an experiment with all tool calls of the server
 * gets all of this share. The rest is for other requests, such as the lists at the start of every session.
 */
export const TOGETHER = 0.8

/** The same share for an experiment limited to some tools or tenants: their part of all calls is unknown. */
const SOME_CALLS = 0.5

/** An experiment with its arms' total share of each server's limits, in (0, 1). */
export interface Portioned {
  readonly experiment: Experiment
  readonly portion: number
}

/**
 * Returns the arms of concurrent experiments, as policy sets. Limits of a whole server, such as slots, are divided
 * among the arms and the calls in no arm, so experiments never raise the load of a server.
 */
export function armsOf(running: readonly Portioned[]): Record<string, ArmSettings> {
  return Object.fromEntries(
    running.flatMap(({ experiment, portion }) => {
      const { name, arms } = experiment
      const takes = takesServer(experiment)
      return [...splitOf(experiment)].map(([arm, part]) => [
        armName(name, arm),
        { set: arms[arm]!, takes, share: portion * part },
      ])
    }),
  )
}

/**
 * Returns the total portion of an experiment's arms. Experiments that begin together and meet at a server get equal
 * parts of the portion for a single experiment.
 */
export function portionOf(
  experiment: Experiment,
  together: readonly Experiment[],
  servers: readonly string[],
): number {
  const { match, share } = experiment
  const isNarrow = isNarrowed(match.tool) || isNarrowed(match.tenant)
  const meeting = servers
    .filter(takesServer(experiment))
    .map((name) => together.filter((other) => takesServer(other)(name)).length)
  return (share * (isNarrow ? SOME_CALLS : TOGETHER)) / Math.max(1, ...meeting)
}

const isNarrowed = (pattern: string | undefined) => pattern !== undefined && !/^\*+$/.test(pattern)

/**
 * Returns the division of a server's limits while these experiments run: the shares of all arms, then the rest for
 * other requests. The keys are the names of the servers at which `experiment` takes calls.
 */
export function sharesAt(
  experiment: Experiment,
  together: readonly Experiment[],
  servers: readonly string[],
): Map<string, number[]> {
  const shares = servers.filter(takesServer(experiment)).map((name): [string, number[]] => {
    const arms = together
      .filter((other) => takesServer(other)(name))
      .flatMap((other) => {
        const portion = portionOf(other, together, servers)
        return [...splitOf(other).values()].map((part) => portion * part)
      })
    return [name, [...arms, arms.reduce((rest, share) => rest - share, 1)]]
  })
  return new Map(shares)
}

export const takesServer = ({ match }: Pick<Experiment, 'match'>): Glob => glob(match.server ?? '*')

/** Returns true when two experiments take calls of the same server. */
export const meet = (one: Experiment, other: Experiment, servers: readonly string[]): boolean =>
  servers.filter(takesServer(one)).some(takesServer(other))

/** Returns true when a call could be in both experiments. */
export function overlap(one: Experiment, other: Experiment, servers: readonly string[]): boolean {
  const [a, b] = [one.match, other.match]
  return meet(one, other, servers) && globsMeet(a.tool, b.tool) && globsMeet(a.tenant, b.tenant)
}
