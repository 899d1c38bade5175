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

/** From which value on a colour holds, ascending; from null on: always. */
export type Steps = readonly (readonly [from: number | null, colour: string])[]

/** Nothing about the number says good or bad. Without a word about it, Grafana makes everything above 80 red. */
export const neutral: Steps = [[null, 'text']]

/** Where there should be none at all: 0 is green, anything above it red. */
export const none: Steps = [
  [null, 'green'],
  [Number.EPSILON, 'red'],
]

/** Burn rates at which somebody is paged: for six hours, and for one. */
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

/** What a 0 and a 1 are called, and in which colour. */
export function words(no: readonly [string, string], yes: readonly [string, string]): ValueMapping[] {
  const options = Object.fromEntries(
    [no, yes].map(([text, color], index) => [String(index), { text, color, index }]),
  )
  return [{ type: MappingType.ValueToText, options }]
}
