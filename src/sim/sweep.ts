import { thorough } from './agents.ts'
import type { PolicyChoice } from './policy-choices.ts'
import { simulate } from './run.ts'
import { independentErrors, sceneOf } from './scene.ts'
import { deviation, mean, rounded } from './statistics.ts'
import { predictedRadius, slisOf } from './tasks.ts'

export interface SweepOptions {
  readonly rates: readonly number[]
  readonly fanOuts: readonly number[]
  readonly tasks: number
  /** Number of runs per cell, with the seeds `seed`, `seed` + 1 and so on. */
  readonly seeds: number
  readonly seed: number
  readonly choices: readonly PolicyChoice[]
}

export interface SweepCell {
  readonly rate: number
  readonly fanOut: number
  readonly policies: string
  /** 1 − (1 − rate)^fanOut: the blast radius with independent failures and no retries. */
  readonly predicted: number
  /** Mean over all seeds, and standard deviation between seeds; null for a single seed. */
  readonly measured: number
  readonly sd: number | null
}

/** Measures every cell, one policy choice after the other, and calls `onCell` after each cell. */
export async function sweep(
  { rates, fanOuts, tasks, seeds, seed: first, choices }: SweepOptions,
  onCell: (cell: SweepCell) => void = () => undefined,
): Promise<readonly SweepCell[]> {
  const cells: SweepCell[] = []
  for (const choice of choices)
    for (const rate of rates)
      for (const fanOut of fanOuts) {
        const radii: number[] = []
        const { servers, stepsOf } = sceneOf(fanOut)
        const workload = { tasks, stepsOf, agent: thorough }
        for (let seed = first; seed < first + seeds; seed++) {
          const faults = [independentErrors(rate)]
          const tally = await simulate({ seed, servers, choice, faults, workload })
          radii.push(slisOf(tally).blastRadius)
        }
        const cell = {
          rate,
          fanOut,
          policies: choice.name,
          predicted: rounded(predictedRadius(rate, fanOut)),
          measured: rounded(mean(radii)),
          sd: seeds < 2 ? null : rounded(deviation(radii)),
        }
        cells.push(cell)
        onCell(cell)
      }
  return cells
}
