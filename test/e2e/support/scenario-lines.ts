/**
 * Lines that depend on a clock, which runs on while the machine stalls: durations of calls, shares of ended calls, and
 * times of events. Whether an event happened does not depend on a clock: a missing event has no time. In virtual time,
 * without stalls, these lines hold too: see `test/commands/scenarios-hold`.
 */
const BY_THE_CLOCK = /^((other servers, )?(p95 of calls|share of calls that succeed).*|.*: [\d.]+(ms|s|m))$/

export interface Said {
  /** Assertions, and the failures among them. */
  readonly all: number
  readonly missed: number
  /** Failed assertions that depend on no clock. */
  readonly counted: readonly string[]
}

/** Reads the output of `breakwater scenario run`. */
export function assertionsIn(lines: readonly string[]): Said {
  const said = lines.filter((line) => /^(pass|FAIL|\?{4}|skip) {2}/.test(line))
  const missed = said.filter((line) => !line.startsWith('pass'))
  const counted = missed.filter((line) => line.startsWith('skip') || !BY_THE_CLOCK.test(line.slice(6)))
  return { all: said.length, missed: missed.length, counted }
}
