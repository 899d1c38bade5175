/** Experiments without a gateway: units come from known distributions, so the truth is known. */

export type Random = () => number

/** Standard normal, by G. Box and M. Muller (1958). */
export const normal = (random: Random): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())

export function successes(random: Random, trials: number, probability: number): number {
  let count = 0
  for (let trial = 0; trial < trials; trial++) if (random() < probability) count++
  return count
}

/** Calls of a task: at least 1, on average six, seldom many. */
export const callsOfTask = (random: Random): number => 1 + Math.floor(-Math.log(1 - random()) * 5.5)

/** Share of bad tasks: their calls fail 20 times as often as others. */
const BAD_TASKS = 0.2

/**
 * Returns a task as [failed calls, calls]. Failures depend on the task, with an intraclass correlation of 0.24 at
 * `scale` 1. Overall 0.096 · scale of the calls fail.
 */
export function task(random: Random, scale = 1): readonly [failed: number, calls: number] {
  const calls = callsOfTask(random)
  const probability = (random() < BAD_TASKS ? 0.4 : 0.02) * scale
  return [successes(random, calls, probability), calls]
}

/** Share of failed calls in tasks of `scale` 1. */
export const FAILURE_SHARE = BAD_TASKS * 0.4 + (1 - BAD_TASKS) * 0.02

/** Returns the share of runs, from 0 to 1, for which `isTrue` holds. */
export function share(runs: number, isTrue: (run: number) => boolean): number {
  let count = 0
  for (let run = 0; run < runs; run++) if (isTrue(run)) count++
  return count / runs
}
