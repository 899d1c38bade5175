import { createKeyedRandom, type Seed } from '../../mesh/keyed-random.ts'
import { type Baseline, baselineOf, type Evaluated, Evaluator, type Setting } from './evaluation.ts'
import { type Findings, findingsOf } from './findings.ts'
import { advance, firstState, type SearchState } from './genetic.ts'
import type { Standing } from './slo.ts'
import { subjects } from '../../claims/subjects.ts'

/** Where a search is, in words that a checkpoint keeps. */
export interface Standstill {
  readonly state: SearchState
  /** Evaluations that the evaluator knows, and how often it knew an individual already. */
  readonly known: readonly Evaluated[]
  readonly hits: number
}

export interface SearchParts {
  readonly setting: Setting
  /** Tools that faults may aim at, as `server/tool`. */
  readonly tools: readonly string[]
  readonly seed: Seed
  /** Runs of each individual, each with draws of its own; at least 2, or there is no standard error. */
  readonly runs: number
  /** Individuals of a generation. */
  readonly population: number
  readonly generations: number
  /** Most findings. */
  readonly most: number
  /** Where another search of the same kind stood; from the beginning unless given. */
  readonly from?: Standstill
  /** Hears where the search stands before the first generation, and when each is over; the search waits for it. */
  readonly onGeneration?: (standstill: Standstill) => Promise<void>
  /** Hears what the search is at. */
  readonly onStep?: (words: string) => void
}

/** Number of individuals by outcome. */
export type Counts = Readonly<Record<Standing | 'invalid' | 'inapplicable' | 'unreachable', number>>

export interface SearchResult extends Findings {
  readonly baseline: Baseline
  /** Different individuals that the search made, and what became of them. */
  readonly evaluated: number
  readonly counts: Counts
  /** Times that an individual came up again, and was not run again. */
  readonly cacheHits: number
}

/** The objective is violated without any fault: there is nothing to search for. */
export class BaselineViolated extends Error {}

/** Searches for plans that violate an objective by a little. The same parts give the same result, wherever it begins. */
export async function search(parts: SearchParts): Promise<SearchResult> {
  const { setting, tools, seed, population, generations, most, from, onGeneration, onStep } = parts
  const { searching, checking, confirming } = seedsOf(parts)
  onStep?.('without faults')
  const baseline = await baselineOf(setting, [...searching, ...checking])
  if (baseline.excess > 0) {
    const { sli, target } = setting.slo
    const value = subjects[sli].unit === 'ms' ? `${baseline.mean.toFixed(1)} ms` : baseline.mean.toFixed(5)
    throw new BaselineViolated(
      `the SLO is violated without any fault: ${sli} is ${value}, and is to be ${target}; search under an SLO that these policies meet`,
    )
  }
  const space = { tools, spanMs: baseline.spanMs }
  const evaluator = new Evaluator(setting, searching)
  if (from !== undefined) evaluator.restore(from.known, from.hits)
  let state = from?.state ?? firstState(space, population, seed)
  const tell = () => onGeneration?.({ state, known: evaluator.known, hits: evaluator.hits })
  // Before a minute of work, and not after it, it shows whether that can be kept.
  await tell()
  while (state.generation < generations) {
    onStep?.(`generation ${state.generation + 1} of ${generations}${nearest(evaluator)}`)
    state = await advance(state, space, evaluator, seed)
    await tell()
  }
  const { known, hits } = evaluator
  const check = new Evaluator(setting, checking)
  const step = (finding: number) => onStep?.(`shrinks finding ${finding} of at most ${most}`)
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

/** How many runs confirm a finding, for each run of a plan in the search: few plans come that far, and their figure is to be precise. */
const CONFIRMING = 3

/** The seeds of the runs that each individual has, of those that a finding has to hold under as well, and of those that confirm it. */
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

/** How far beyond the objective the nearest violation is; nothing while there is none. */
function nearest({ known }: Evaluator): string {
  const excesses = known.flatMap(({ evaluation }) =>
    evaluation.status === 'measured' && evaluation.standing === 'violating' ? [evaluation.excess] : [],
  )
  return excesses.length === 0
    ? ''
    : `; the nearest violation is ${(Math.min(...excesses) * 100).toFixed(0)} % more than the SLO allows`
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
