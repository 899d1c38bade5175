import {
  GraphThresholdsStyleConfigBuilder,
  GraphThresholdsStyleMode,
} from '@grafana/grafana-foundation-sdk/common'
import {
  MappingType,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  type ValueMapping,
} from '@grafana/grafana-foundation-sdk/dashboard'

/** Colours by lower bound, ascending; null means from the beginning. */
export type Steps = readonly (readonly [from: number | null, colour: string])[]

/** Colours of numbers that are neither good nor bad. Without thresholds, Grafana colours everything above 80 red. */
export const neutral: Steps = [[null, 'text']]

/** Colours of counts that should be zero: 0 is green, any other value red. */
export const none: Steps = [
  [null, 'green'],
  [Number.EPSILON, 'red'],
]

/** Burn rates that page: over six hours, and over one hour. */
export const pages: Steps = [
  [null, 'transparent'],
  [6, 'orange'],
  [14.4, 'red'],
]

export function thresholds(steps: Steps): ThresholdsConfigBuilder {
  return new ThresholdsConfigBuilder()
    .mode(ThresholdsMode.Absolute)
    .steps(steps.map(([value, color]) => ({ value, color })))
}

/** Thresholds as lines across a graph. */
export const dashed = new GraphThresholdsStyleConfigBuilder().mode(GraphThresholdsStyleMode.Dashed)

/** Labels and colours of 0 and 1. */
export const words = (no: Word, yes: Word): ValueMapping[] => numbered([no, yes], 0)

/** Labels and colours of 1, 2 and so on. */
export const letters = (all: readonly Word[]): ValueMapping[] => numbered(all, 1)

type Word = readonly [text: string, colour: string]

function numbered(all: readonly Word[], first: number): ValueMapping[] {
  const options = Object.fromEntries(
    all.map(([text, color], index) => [String(first + index), { text, color, index }]),
  )
  return [{ type: MappingType.ValueToText, options }]
}
