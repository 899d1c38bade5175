/** Thrown in the middle of a check that costs more than it may. */
class TooCostly extends Error {}

/** One check runs to its end before another begins, so one counter serves all. */
let left = 0

/** Runs a check that may take `most` steps; whoever takes part in it says with `charge` what it costs. */
export function withSteps<Result>(most: number, check: () => Result): Result {
  left = most
  return check()
}

/** Takes steps from the check that runs; a step is about what one keyword or one character of a pattern costs. */
export function charge(steps: number): void {
  left -= steps
  if (left < 0) throw new TooCostly()
}
