import { type Gene, type Genome, genomeOf, LEAST_RATE, significant, type When } from './plan-space.ts'

/** Shares of a rate or a window to try, smallest first. */
const SHARES = [0.5, 0.8]

/**
 * Returns all forms of a plan that are one step smaller: one fault or option less, a shorter window, or a lower rate.
 */
export function smallerForms(genome: Genome): Genome[] {
  const simpler = genome.flatMap((gene, at) =>
    smallerGenes(gene).map((smaller) => genomeOf(genome.with(at, smaller))),
  )
  const fewer = genome.length === 1 ? [] : genome.map((_, at) => genome.toSpliced(at, 1))
  return [...fewer, ...simpler]
}

function smallerGenes(gene: Gene): Gene[] {
  const { rate, when, options } = gene
  const { window, burst } = when
  const withoutOption = Object.keys(options).map((name) => {
    const { [name]: _, ...others } = options
    return { ...gene, options: others }
  })
  const withoutBurst: When[] = burst === undefined ? [] : [window === undefined ? {} : { window }]
  const shorter = SHARES.flatMap((share): When[] => {
    if (window === undefined) return []
    const { from, to } = window
    const ms = Math.floor((to - from) * share)
    return ms === 0 ? [] : [{ ...when, window: { from, to: from + ms } }]
  })
  const lower = SHARES.map((share) => significant(rate * share)).filter(
    (smaller) => smaller < rate && smaller >= LEAST_RATE,
  )
  return [
    ...withoutOption,
    ...[...withoutBurst, ...shorter].map((changed) => ({ ...gene, when: changed })),
    ...lower.map((smaller) => ({ ...gene, rate: smaller })),
  ]
}

/**
 * Replaces the plan by a smaller form that `holds` accepts, until no form is accepted. Resolves to the smallest form.
 * After each success, continues at the same position in the list of the new form's smaller forms; earlier positions are
 * tried again at the end.
 */
export async function shrink(genome: Genome, holds: (genome: Genome) => Promise<boolean>): Promise<Genome> {
  let smallest = genome
  let hasShrunk: boolean
  do {
    hasShrunk = false
    for (let at = 0; ;) {
      const form = smallerForms(smallest)[at]
      if (form === undefined) break
      if (await holds(form)) {
        smallest = form
        hasShrunk = true
      } else at++
    }
  } while (hasShrunk)
  return smallest
}
