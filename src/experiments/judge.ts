import type { UnitSample } from './samples.ts'
import type { Experiment } from './schema.ts'

export interface Judgement {
  readonly verdict: {
    readonly result: 'better' | 'worse' | 'no_difference_found' | 'inconclusive' | 'invalid'
    readonly ends: boolean
    readonly harm: boolean
    readonly sentence: string
    readonly difference: number | undefined
    readonly low: number | undefined
    readonly high: number | undefined
    readonly units: number
  }
}

export function judge(
  _: Experiment,
  samples: readonly UnitSample[],
  __: { readonly isOver: boolean },
): Judgement {
  return {
    verdict: {
      result: 'inconclusive',
      ends: false,
      harm: false,
      sentence: '',
      difference: undefined,
      low: undefined,
      high: undefined,
      units: samples.length,
    },
  }
}
