import { type Glob, glob, globsMeet } from '../mesh/match.ts'
import type { ArmSettings } from '../mesh/settings.ts'
import { armName, type Experiment, splitOf } from './schema.ts'

/**
 * The largest share of the limits of a whole server, such as slots, that all arms at the server get together. One experiment
 * that takes all tool calls of the server gets this share. The rest is for requests that are no tool calls, such as the
 * lists that every session begins with.
 */
export const TOGETHER = 0.8

/** The same where it takes only calls of some tools or tenants: how many of all calls these are, nobody knows. */
const SOME_CALLS = 0.5

/** An experiment with its arms' total share of each server's limits, in (0, 1). */
export interface Portioned {
  readonly experiment: Experiment
  readonly portion: number
}

/**
 * Returns the arms of concurrent experiments, as policy sets. Limits of a whole server, such as slots, are divided
 * among the arms and the calls in no arm. Experiments never give a server more than before.
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
 * The shares by which the limits of a server are divided while these experiments run, those of all arms there and what is left for other
 * requests: by the name of each server of which the experiment takes calls.
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

/** Returns a test by server name: whether an experiment takes calls of the server. */
export const takesServer = ({ match }: Pick<Experiment, 'match'>): Glob => glob(match.server ?? '*')

/** Whether two experiments take calls of the same server. */
export const meet = (one: Experiment, other: Experiment, servers: readonly string[]): boolean =>
  servers.filter(takesServer(one)).some(takesServer(other))

/** Whether a call could be in both experiments. */
export function overlap(one: Experiment, other: Experiment, servers: readonly string[]): boolean {
  const [a, b] = [one.match, other.match]
  return meet(one, other, servers) && globsMeet(a.tool, b.tool) && globsMeet(a.tenant, b.tenant)
}
