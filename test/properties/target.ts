import fc from 'fast-check'

/** A property that must hold for every input. Its name is a sentence. */
export interface Target {
  readonly name: string
  /** Cases of a run of `npm test`; fewer for targets that drive a clock or a socket. */
  readonly shortRuns: number
  /** Inputs of a case; default 1. */
  readonly inputs?: number
  /** Returns what the target counts about its cases so far. */
  tally?(): string
  /** Stops everything that cases have started. */
  close?(): Promise<void>
  check(parameters: { seed: number; numRuns: number; path?: string }): Promise<Failure | undefined>
}

/** The first failed case, shrunk. */
export interface Failure {
  readonly seed: number
  /** Leads fast-check to the small case at once. */
  readonly path: string
  readonly report: string
}

/** Makes a target of a property; `holds` throws or rejects on failure. */
export function target<Case>(
  name: string,
  cases: fc.Arbitrary<Case>,
  holds: (given: Case) => void,
  shortRuns = 1_000,
): Target {
  return {
    name,
    shortRuns,
    check: async (parameters) => failureOf(fc.check(fc.property(cases, holds), parameters)),
  }
}

/** The same for a property that takes turns of the event loop. */
export function asyncTarget<Case>(
  name: string,
  cases: fc.Arbitrary<Case>,
  holds: (given: Case) => Promise<void>,
  shortRuns = 200,
): Target {
  return {
    name,
    shortRuns,
    check: async (parameters) => failureOf(await fc.check(fc.asyncProperty(cases, holds), parameters)),
  }
}

function failureOf<Cases>(details: fc.RunDetails<Cases>): Failure | undefined {
  if (!details.failed) return undefined
  const { seed, counterexamplePath, errorInstance } = details
  const report = `${fc.defaultReportMessage(details) ?? 'failed'}\n${String(errorInstance)}`
  return { seed, path: counterexamplePath ?? '', report }
}
