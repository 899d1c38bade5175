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
  // Also when it is no number any more.
  if (!(left >= 0)) throw new TooCostly()
}

/** A check that goes on after a mismatch writes down each further one, which takes so many times as long. */
const MISMATCHING = 32

/** Names of members above this length are charged for by character: Ajv writes them into paths, with slashes escaped. */
const LONG = 256
const OF_LONG = 64

/** Charges for the check of a value by one subschema; see `Steps`. `found`: mismatches so far, of a check that goes on after them. */
export function chargeFor(
  value: unknown,
  once: number,
  perCharacter: number,
  perElement: number,
  perMember: number,
  found: number,
): void {
  let steps = once
  if (typeof value === 'string') steps += perCharacter * value.length
  else if (Array.isArray(value)) steps += perElement * value.length
  else if (perMember > 0 && typeof value === 'object') {
    // Counted no further than can be paid for: to count takes time as well.
    for (const name in value)
      if ((steps += perMember + (name.length > LONG ? OF_LONG * name.length : 0)) > left) break
  }
  charge(found > 0 ? MISMATCHING * steps : steps)
}
