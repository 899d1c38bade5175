import type { Millis } from '../../../mesh/clock.ts'

/** Thrown in the middle of a check that costs more than it may. */
class TooCostly extends Error {}

/** Limits of one check. */
export interface Allowance {
  /** For what it goes through; a check that takes more is given up. */
  readonly steps: number
  /** For patterns and formats; one that would take more than is left of it is not tried, and taken to fit. */
  readonly texts: number
  /** CPU time of the process, in milliseconds; looked at now and then, for V8 runs large functions without optimising them. */
  readonly cpuMs: Millis
}

/** Steps between two looks at the CPU time. */
const LOOK = 16_384

/** One check runs to its end before another begins, so one counter of each serves all. */
let left = 0
let leftForTexts = 0
let hasAssumed = false
/** `nextLook`: the steps left at the next look at the CPU time. `cpuEnd`: the CPU time at which the check is given up, set at the first look. */
let nextLook = 0
let cpuEnd: Millis | undefined
let cpuAllowed: Millis = 0
let cpuNow: CpuTime = processCpu

/** Returns the CPU time spent so far, in milliseconds. */
export type CpuTime = () => Millis

/** Returns the CPU time of all threads of the process so far, in milliseconds. */
export function processCpu(): Millis {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

/**
 * Runs a check; whoever takes part in it says with `charge` what it costs. `assumed`: some text was taken to fit that nobody has looked at.
 */
export function withSteps<Result>(
  { steps, texts, cpuMs }: Allowance,
  cpu: CpuTime,
  check: () => Result,
): { readonly result: Result; readonly assumed: boolean } {
  left = steps
  leftForTexts = texts
  hasAssumed = false
  nextLook = steps - LOOK
  cpuNow = cpu
  cpuAllowed = cpuMs
  cpuEnd = undefined
  return { result: check(), assumed: hasAssumed }
}

/** Pays for a look at a text, if it can be paid for. If not, the text has to be taken to fit: who chose it must not end the whole check. */
export function affords(steps: number): boolean {
  charge(1)
  // Not so either when it is no number any more.
  if (leftForTexts - steps >= 0) {
    leftForTexts -= steps
    return true
  }
  hasAssumed = true
  return false
}

/** Takes steps from the check that runs; a step is about what one keyword or one character of a pattern costs. */
export function charge(steps: number): void {
  left -= steps
  if (left >= nextLook) return
  // Also when it is no number any more.
  if (!(left >= 0)) throw new TooCostly()
  look()
}

/** Gives up a check that has taken too much CPU time. The time counts from the first look, so small checks read no clock. */
function look(): void {
  nextLook = left - LOOK
  const now = cpuNow()
  cpuEnd ??= now + cpuAllowed
  if (now > cpuEnd) throw new TooCostly()
}

/** A check that goes on after a mismatch writes down each further one, which takes so many times as long. */
export const MISMATCHING = 32

/** The same for a check that ends at its first mismatch: its unions still record mismatches of their members. */
export const MISMATCHING_IN_UNION = 8

/** Names of members above this length are charged for by character: Ajv writes them into paths, with slashes escaped. */
const LONG = 256
const OF_LONG = 64

/** Charges `times` what the check of a value by one subschema costs; see `Steps`. */
export function chargeFor(
  value: unknown,
  once: number,
  perCharacter: number,
  perElement: number,
  perMember: number,
  times: number,
): void {
  let steps = once
  if (typeof value === 'string') steps += perCharacter * value.length
  else if (Array.isArray(value)) steps += perElement * value.length
  else if (perMember > 0 && typeof value === 'object') {
    // Counted no further than can be paid for: to count takes time as well.
    for (const name in value)
      if ((steps += perMember + (name.length > LONG ? OF_LONG * name.length : 0)) > left) break
  }
  charge(times * steps)
}
