import type { Millis } from '../../mesh/clock.ts'
import type { Seed } from '../../mesh/keyed-random.ts'
import { alternativesTo } from './containment.ts'
import { Evaluator, measure } from './evaluation.ts'
import { type Genome, holdsTypesOf, keyOf, kindOf } from './plan-space.ts'
import { shrink } from './shrink.ts'
import { isClearlyWithin, type Measured } from './slo.ts'

/** A plan with a slight violation of the objective. */
export interface Finding {
  /** The plan as found by the search, and its measurement there. */
  readonly found: Genome
  readonly foundWith: Measured
  /** The smallest form of `found` that still violates the objective. */
  readonly plan: Genome
  /** Measurement of `plan` under the seeds of the search. */
  readonly searched: Measured
  /**
   * Measurement of `plan` under other seeds. Each step of shrinking had to violate the objective under these seeds too.
   */
  readonly checked: Measured
  /** Measurement of `plan` under a third set of seeds, which had no influence on the plan. This figure is reported. */
  readonly confirmed: Measured
  /** Single changes of policies with which the plan meets the objective again, written as in a config. */
  readonly containedBy: readonly string[]
}

export interface Findings {
  /** The findings, ordered by confirmed violation, smallest first. */
  readonly findings: readonly Finding[]
  /** Number of plans that violate the objective under the seeds of the search, but not under the seeds of the check. */
  readonly refuted: number
  /**
   * Number of smallest forms that violate the objective slightly under the first two sets of seeds, but not under the
   * third; they are no findings.
   */
  readonly unconfirmed: number
  /** Number of skipped plans that had all fault types of an earlier finding, before or after shrinking. */
  readonly alike: number
}

interface FindingParts {
  readonly evaluator: Evaluator
  /** An evaluator of the same setting under other seeds. */
  readonly check: Evaluator
  /**
   * A third set of seeds, used once per smallest form. A figure used to select the plan would be too bad on average, so
   * it cannot be reported.
   */
  readonly confirmingSeeds: readonly Seed[]
  /** Maximum number of findings. */
  readonly most: number
  readonly usualMs: Millis
  readonly onStep?: (finding: number) => void
}

/**
 * Maximum number of plans with the same types to check. The plans nearest to the boundary may violate it only by
 * chance.
 */
const MOST_OF_A_KIND = 3

/**
 * Checks, shrinks and confirms the evaluated plans of a search, and looks for containing changes. Resolves to one
 * finding per set of types. Tries the simplest plans first, and skips later plans that contain all types of a finding.
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

/** Returns individuals with a slight violation: fewest faults first, then nearest to the boundary. */
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

/**
 * Resolves to the single changes of policies with which the plan clearly meets the objective, under the seeds of the
 * search and of the check.
 */
async function containments(plan: Genome, { evaluator, check, usualMs }: FindingParts): Promise<string[]> {
  const { setting } = evaluator
  const held: string[] = []
  for (const { change, choice } of alternativesTo(setting.choice, { usualMs })) {
    let isMet = true
    for (const { seeds } of [evaluator, check]) {
      const evaluation = await new Evaluator({ ...setting, choice }, seeds).evaluate(plan)
      // If the fault hits no call after a change, the result of the other seeds decides.
      isMet = evaluation.status === 'measured' ? isClearlyWithin(setting.slo, evaluation) : isMet
      if (!isMet) break
    }
    if (isMet) held.push(change)
  }
  return held
}
