import type { Millis } from '../../mesh/clock.ts'
import type { Seed } from '../../mesh/keyed-random.ts'
import { alternativesTo } from './containment.ts'
import { Evaluator, measure } from './evaluation.ts'
import { type Genome, holdsTypesOf, keyOf, kindOf } from './plan-space.ts'
import { shrink } from './shrink.ts'
import { isClearlyWithin, type Measured } from './slo.ts'

/** A plan that violates the objective by a little. */
export interface Finding {
  /** As the search came upon it, and what it did there. */
  readonly found: Genome
  readonly foundWith: Measured
  /** The smallest form of it that still violates. */
  readonly plan: Genome
  /** Measurement of `plan` under the seeds of the search. */
  readonly searched: Measured
  /** The same under other seeds, under which each step of shrinking had to violate as well. */
  readonly checked: Measured
  /** The same under a third set of seeds, which had no say in what it looks like: this is its figure. */
  readonly confirmed: Measured
  /** Single changes of policies with which the objective holds again, as a config says them. */
  readonly containedBy: readonly string[]
}

export interface Findings {
  /** The smallest confirmed violation first. */
  readonly findings: readonly Finding[]
  /** Plans that violated under the seeds of the search, and not under those of the check. */
  readonly refuted: number
  /** Smallest forms that violated by a little under both, and not under the third set of seeds: they are no findings. */
  readonly unconfirmed: number
  /** Plans that hold the types of a finding, as they are or when they are shrunk. */
  readonly alike: number
}

interface FindingParts {
  /** The evaluator of the search, with all of its evaluations. */
  readonly evaluator: Evaluator
  /** The same setting under other seeds. */
  readonly check: Evaluator
  /** A third set of seeds, each used once for each smallest form: what is chosen by its figure has one that is too bad. */
  readonly confirmingSeeds: readonly Seed[]
  /** Most findings. */
  readonly most: number
  readonly usualMs: Millis
  /** Hears that something is done. */
  readonly onStep?: (finding: number) => void
}

/** Most plans of one kind that are looked at: the nearest ones may all be luck. */
const MOST_OF_A_KIND = 3

/**
 * Makes findings of what a search has evaluated: checked, shrunk, confirmed, and with what would contain them. One for each set of
 * types; the simplest plans come first, and those that hold the types of a finding say nothing new.
 */
export async function findingsOf(parts: FindingParts): Promise<Findings> {
  const { evaluator, check, confirmingSeeds, most, onStep } = parts
  const findings: Finding[] = []
  const looks = new Map<string, number>()
  let [refuted, unconfirmed, alike] = [0, 0, 0]
  const isNew = (form: Genome) => !findings.some(({ plan }) => holdsTypesOf(form, plan))
  const holds = async (form: Genome) =>
    (await isViolating(evaluator, form)) && (await isViolating(check, form))
  for (const { genome, measured } of candidates(evaluator)) {
    if (findings.length === most) break
    if (!isNew(genome)) {
      alike++
      continue
    }
    const kind = kindOf(genome)
    const times = (looks.get(kind) ?? 0) + 1
    if (times > MOST_OF_A_KIND) continue
    looks.set(kind, times)
    onStep?.(findings.length + 1)
    if (!(await isViolating(check, genome))) {
      refuted++
      continue
    }
    const plan = await shrink(genome, holds)
    if (!isNew(plan)) {
      alike++
      continue
    }
    const confirmed = await measure(evaluator.setting, plan, confirmingSeeds)
    if (confirmed.standing !== 'violating') {
      unconfirmed++
      continue
    }
    findings.push({
      found: genome,
      foundWith: measured,
      plan,
      searched: await measuredBy(evaluator, plan),
      checked: await measuredBy(check, plan),
      confirmed,
      containedBy: await containments(plan, parts),
    })
  }
  findings.sort((a, b) => a.confirmed.excess - b.confirmed.excess)
  return { findings, refuted, unconfirmed, alike }
}

interface Candidate {
  readonly genome: Genome
  readonly measured: Measured
}

/** Returns individuals that violated the objective by a little: the fewest faults first, and then the nearest. */
function candidates({ known }: Evaluator): Candidate[] {
  const found = known.flatMap(({ genome, evaluation }) =>
    evaluation.status === 'measured' && evaluation.standing === 'violating'
      ? [{ genome, measured: evaluation }]
      : [],
  )
  return found.sort(
    (a, b) =>
      a.genome.length - b.genome.length ||
      a.measured.excess - b.measured.excess ||
      (keyOf(a.genome) < keyOf(b.genome) ? -1 : 1),
  )
}

async function isViolating(evaluator: Evaluator, genome: Genome): Promise<boolean> {
  const evaluation = await evaluator.evaluate(genome)
  return evaluation.status === 'measured' && evaluation.standing === 'violating'
}

async function measuredBy(evaluator: Evaluator, genome: Genome): Promise<Measured> {
  const evaluation = await evaluator.evaluate(genome)
  if (evaluation.status !== 'measured') throw new Error('a finding was measured before')
  return evaluation
}

/** Single changes with which the objective is clearly met again, under the seeds of the search and of the check. */
async function containments(plan: Genome, { evaluator, check, usualMs }: FindingParts): Promise<string[]> {
  const { setting } = evaluator
  const held: string[] = []
  for (const { change, choice } of alternativesTo(setting.choice, { usualMs })) {
    let isMet = true
    for (const { seeds } of [evaluator, check]) {
      const evaluation = await new Evaluator({ ...setting, choice }, seeds).evaluate(plan)
      // Where the change keeps all calls from the fault, nothing is violated either.
      isMet = evaluation.status === 'measured' ? isClearlyWithin(setting.slo, evaluation) : isMet
      if (!isMet) break
    }
    if (isMet) held.push(change)
  }
  return held
}
