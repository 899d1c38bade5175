import { type Gene, type Genome, genomeOf, LEAST_RATE, significant, type When } from './plan-space.ts'

/** Shares of a rate or a window to try, smallest first. */
const SHARES = [0.5, 0.8]

/** Returns all forms smaller by a step: a fault or an option less, a shorter window, a lower rate. */
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
 * Takes smaller forms accepted by `holds` until none is left. After each success the search continues at the same
 * position among the new form's forms, and retries failed forms only at the end.
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
