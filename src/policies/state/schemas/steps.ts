import type { Millis } from '../../../mesh/clock.ts'

class TooCostly extends Error {}

export interface Allowance {
  /** Steps for the work on the value; a check that needs more is given up. */
  readonly steps: number
  /** Steps for patterns and formats; a match that would exceed the rest is not tried, and assumed to fit. */
  readonly texts: number
  /** CPU time of the process, in milliseconds: V8 runs large functions without optimising them. */
  readonly cpuMs: Millis
}

/** Steps between two readings of the CPU time. */
const LOOK = 16_384

/** Checks run one after another, so a single counter of each kind serves all. */
let left = 0
let leftForTexts = 0
let hasAssumed = false
/**
 * The steps left at the next reading of the CPU time, and the CPU time that ends the check, set at the first reading.
 */
let nextLook = 0
let cpuEnd: Millis | undefined
let cpuAllowed: Millis = 0
let cpuNow: CpuTime = processCpu

export type CpuTime = () => Millis

/** Returns the CPU time of all threads of the process so far, in milliseconds. */
export function processCpu(): Millis {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1_000
}

/** Runs a check; its parts report their cost with `charge`. `assumed`: an unread text was assumed to fit. */
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

/** Charges for matching a text. False if that costs too much: the text counts as a match, and the check continues. */
export function affords(steps: number): boolean {
  charge(1)
  // False for NaN too.
  if (leftForTexts - steps >= 0) {
    leftForTexts -= steps
    return true
  }
  hasAssumed = true
  return false
}

/** Takes steps from the running check; a step is about the cost of a keyword or of a pattern's character. */
export function charge(steps: number): void {
  left -= steps
  if (left >= nextLook) return
  // True for NaN too.
  if (!(left >= 0)) throw new TooCostly()
  look()
}

/** Gives up a check over its CPU time. The time counts from the first reading, so small checks read no clock. */
function look(): void {
  nextLook = left - LOOK
  const now = cpuNow()
  cpuEnd ??= now + cpuAllowed
  if (now > cpuEnd) throw new TooCostly()
}

/** The cost factor for a check that continues after a mismatch, because it records each further mismatch. */
export const MISMATCHING = 32

/** The cost factor for a check that ends at its first mismatch: its unions still record mismatches of their members. */
export const MISMATCHING_IN_UNION = 8

/** Longer member names are charged by character: Ajv writes them into paths, with slashes escaped. */
const LONG = 256
const OF_LONG = 64

/** Charges `times` the cost of checking a value by one subschema; see `Steps`. */
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
    // Stops counting at the affordable cost, because counting takes time as well.
    for (const name in value)
      if ((steps += perMember + (name.length > LONG ? OF_LONG * name.length : 0)) > left) break
  }
  charge(times * steps)
}
