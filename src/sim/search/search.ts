import { createKeyedRandom, type Seed } from '../../mesh/keyed-random.ts'
import { type Baseline, baselineOf, type Evaluated, Evaluator, type Setting } from './evaluation.ts'
import { type Findings, findingsOf } from './findings.ts'
import { advance, firstState, type SearchState } from './genetic.ts'
import type { Standing } from './slo.ts'
import { subjects } from '../../claims/subjects.ts'

/** A search's state for checkpoints. */
export interface Standstill {
  readonly state: SearchState
  /** Evaluations of the evaluator, and the number of repeated individuals. */
  readonly known: readonly Evaluated[]
  readonly hits: number
}

export interface SearchParts {
  readonly setting: Setting
  /** Targets of faults, as `server/tool`. */
  readonly tools: readonly string[]
  readonly seed: Seed
  /** Runs per individual, each with its own draws. At least 2, because a standard error needs 2. */
  readonly runs: number
  readonly population: number
  readonly generations: number
  /** Maximum number of findings. */
  readonly most: number
  /** The state of an earlier search with the same options. Default: a new search. */
  readonly from?: Standstill
  /** Called before the first generation and after each generation; the search awaits the result. */
  readonly onGeneration?: (standstill: Standstill) => Promise<void>
  readonly onStep?: (words: string) => void
}

/** Number of individuals by outcome. */
export type Counts = Readonly<Record<Standing | 'invalid' | 'inapplicable' | 'unreachable', number>>

export interface SearchResult extends Findings {
  readonly baseline: Baseline
  /** Number of different individuals; `counts` has their outcomes. */
  readonly evaluated: number
  readonly counts: Counts
  /** Number of repeated individuals, which were not run again. */
  readonly cacheHits: number
}

/** Thrown when the objective is violated without faults, so a search is pointless. */
export class BaselineViolated extends Error {}

/**
 * Searches for plans with slight violations of an objective. Equal options give equal results, with or without `from`.
 */
export async function search(parts: SearchParts): Promise<SearchResult> {
  const { setting, tools, seed, population, generations, most, from, onGeneration, onStep } = parts
  const { searching, checking, confirming } = seedsOf(parts)
  onStep?.('without faults')
  const baseline = await baselineOf(setting, [...searching, ...checking])
  if (baseline.excess > 0) {
    const { sli, target } = setting.slo
    const value = subjects[sli].unit === 'ms' ? `${baseline.mean.toFixed(1)} ms` : baseline.mean.toFixed(5)
    throw new BaselineViolated(
      `the SLO is violated without any fault: ${sli} is ${value} instead of ${target}; use an SLO met by these policies`,
    )
  }
  const space = { tools, spanMs: baseline.spanMs }
  const evaluator = new Evaluator(setting, searching)
  if (from !== undefined) evaluator.restore(from.known, from.hits)
  let state = from?.state ?? firstState(space, population, seed)
  const tell = () => onGeneration?.({ state, known: evaluator.known, hits: evaluator.hits })
  // Writes the checkpoint before the first generation, so an unwritable file fails before a minute of work.
  await tell()
  while (state.generation < generations) {
    onStep?.(`generation ${state.generation + 1} of ${generations}${nearest(evaluator)}`)
    state = await advance(state, space, evaluator, seed)
    await tell()
  }
  const { known, hits } = evaluator
  const check = new Evaluator(setting, checking)
  const step = (finding: number) => onStep?.(`shrinking finding ${finding} of at most ${most}`)
  const usualMs = baseline.usualMs
  const findings = await findingsOf({
    evaluator,
    check,
    confirmingSeeds: confirming,
    most,
    usualMs,
    onStep: step,
  })
  return { ...findings, baseline, evaluated: known.length, counts: countsOf(known), cacheHits: hits }
}

/**
 * Number of confirming runs per run in the search. Few plans are confirmed, and their reported figure should be
 * precise.
 */
const CONFIRMING = 3

function seedsOf({ seed, runs }: SearchParts): {
  readonly searching: readonly Seed[]
  readonly checking: readonly Seed[]
  readonly confirming: readonly Seed[]
} {
  const random = createKeyedRandom(seed)
  const seeds = (purpose: string, length: number) =>
    Array.from({ length }, (_, at) => Math.floor(random(String(at), purpose) * 2 ** 52))
  return {
    searching: seeds('search', runs),
    checking: seeds('check', runs),
    confirming: seeds('confirm', runs * CONFIRMING),
  }
}

/** Returns a text with the excess of the smallest violation so far; empty without a violation. */
function nearest({ known }: Evaluator): string {
  const excesses = known.flatMap(({ evaluation }) =>
    evaluation.status === 'measured' && evaluation.standing === 'violating' ? [evaluation.excess] : [],
  )
  return excesses.length === 0
    ? ''
    : `; the nearest violation is ${(Math.min(...excesses) * 100).toFixed(0)} % over the SLO's allowance`
}

function countsOf(known: readonly Evaluated[]): Counts {
  const counts = {
    within: 0,
    uncertain: 0,
    violating: 0,
    outage: 0,
    invalid: 0,
    inapplicable: 0,
    unreachable: 0,
  }
  for (const { evaluation } of known)
    counts[evaluation.status === 'measured' ? evaluation.standing : evaluation.status]++
  return counts
}
