/**
 * What is told by a clock that runs on while the machine is held up: how long calls took, how many of them had ended by then, and when
 * something came about. That it did is no matter of the clock: what never came has no time. Where nothing holds them up, in virtual
 * time, these hold as well: see `test/commands/scenarios-hold`.
 */
const BY_THE_CLOCK = /^((other servers, )?(p95 of calls|share of calls that succeed).*|.*: [\d.]+(ms|s|m))$/

/** What a run says came of its assertions. */
export interface Said {
  /** Assertions, and those of them that did not hold. */
  readonly all: number
  readonly missed: number
  /** The lines of those that did not hold although no clock has a say in them. */
  readonly counted: readonly string[]
}

/** Reads what `breakwater scenario run` has printed. */
export function assertionsIn(lines: readonly string[]): Said {
  const said = lines.filter((line) => /^(pass|FAIL|\?{4}|skip) {2}/.test(line))
  const missed = said.filter((line) => !line.startsWith('pass'))
  const counted = missed.filter((line) => line.startsWith('skip') || !BY_THE_CLOCK.test(line.slice(6)))
  return { all: said.length, missed: missed.length, counted }
}
