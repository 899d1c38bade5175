import { measuredUnit } from '../../src/experiments/samples.ts'

/** A gateway without experiments. */
export const noExperiments = {
  unit: measuredUnit,
  armsIn: () => ({}),
  assignIn: () => undefined,
  end: () => undefined,
}
