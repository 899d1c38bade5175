import { glob } from '../mesh/match.ts'
import type { ArmSettings } from '../mesh/settings.ts'
import { armName, type Experiment, splitOf } from './schema.ts'

/**
 * Of what is limited for a whole server, the part that the arms of an experiment get together where it takes all tool calls
 * of the server. The rest is for requests that are no tool calls, such as the lists that every session begins with.
 */
const ALL_CALLS = 0.8

/** The same where it takes only calls of some tools or tenants: how many of all calls these are, nobody knows. */
const SOME_CALLS = 0.5

/**
 * The arms of experiments that run at the same time, as policy sets. What is limited for a whole server, such as slots, is
 * divided among arms and the calls in none: experiments never give a server more than it had before.
 */
export function armsOf(
  experiments: readonly Experiment[],
  servers: readonly string[],
): Record<string, ArmSettings> {
  return Object.fromEntries(
    experiments.flatMap((experiment) => {
      const { name, arms, match } = experiment
      const takes = glob(match.server ?? '*')
      const together = capacityOf(experiment, experiments, servers)
      return [...splitOf(experiment)].map(([arm, part]) => [
        armName(name, arm),
        { set: arms[arm]!, takes, share: together * part },
      ])
    }),
  )
}

/** What all arms of an experiment have together, in (0, 1). Those that meet at a server have equal parts of it. */
function capacityOf(
  { match, share }: Experiment,
  all: readonly Experiment[],
  servers: readonly string[],
): number {
  const isNarrow = isNarrowed(match.tool) || isNarrowed(match.tenant)
  const meeting = servers
    .filter(glob(match.server ?? '*'))
    .map((name) => all.filter((other) => glob(other.match.server ?? '*')(name)).length)
  return (share * (isNarrow ? SOME_CALLS : ALL_CALLS)) / Math.max(1, ...meeting)
}

const isNarrowed = (pattern: string | undefined) => pattern !== undefined && !/^\*+$/.test(pattern)

/** The smallest share of a server's capacity that anybody has while an experiment runs beside others: an arm, or the calls in none. */
export function leastShareOf(
  experiment: Experiment,
  all: readonly Experiment[],
  servers: readonly string[],
): number {
  const together = capacityOf(experiment, all, servers)
  const left = servers
    .filter(glob(experiment.match.server ?? '*'))
    .map((name) =>
      all
        .filter((other) => glob(other.match.server ?? '*')(name))
        .reduce((rest, other) => rest - capacityOf(other, all, servers), 1),
    )
  return Math.min(...left, ...[...splitOf(experiment).values()].map((part) => together * part))
}

/** Whether one call could be in two experiments. */
export function overlap(one: Experiment, other: Experiment, servers: readonly string[]): boolean {
  const [a, b] = [one.match, other.match]
  const shared = servers.some((name) => glob(a.server ?? '*')(name) && glob(b.server ?? '*')(name))
  return shared && mayMeet(a.tool, b.tool) && mayMeet(a.tenant, b.tenant)
}

/** Whether a name could match both globs: certain only where one of them is a plain name. */
function mayMeet(a = '*', b = '*'): boolean {
  if (!/[*?]/.test(a)) return glob(b)(a)
  return /[*?]/.test(b) || glob(a)(b)
}
