import fc from 'fast-check'

/** One thing that has to hold, whatever comes. Its name is the sentence that says so. */
export interface Target {
  readonly name: string
  /** Cases of a run of `npm test`; fewer for those that drive a clock or a socket. */
  readonly shortRuns: number
  /** How many inputs a case consists of; 1 unless given. */
  readonly inputs?: number
  /** Ends what its cases have started. */
  close?(): Promise<void>
  check(parameters: { seed: number; numRuns: number; path?: string }): Promise<Failure | undefined>
}

/** The first case that did not hold, as small as it could be made. */
export interface Failure {
  readonly seed: number
  /** Leads fast-check to the small case at once. */
  readonly path: string
  readonly report: string
}

/** A target of a property; `holds` throws, or rejects, where it does not hold. */
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

/** The same for what takes turns of the event loop. */
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
