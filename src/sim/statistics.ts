/** Statistics over several runs of a simulation. */

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/** Standard deviation of a sample; 0 for a single value. */
export function deviation(values: readonly number[]): number {
  const middle = mean(values)
  const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0)
  return values.length < 2 ? 0 : Math.sqrt(squares / (values.length - 1))
}

/** Standard error of the mean of a sample; 0 for a single value. */
export const standardError = (values: readonly number[]): number =>
  deviation(values) / Math.sqrt(values.length)

/** Returns true if all values of a sample are equal. The standard error is then unknown, not 0. */
export const isConstant = (values: readonly number[]): boolean => values.every((value) => value === values[0])

/** Returns the mean over runs with its standard error as text; for equal values, the value and the number of runs. */
export function meanInWords(values: readonly number[], inWords: (value: number) => string): string {
  const middle = inWords(mean(values))
  if (values.length === 1) return `${middle} in the only run`
  return isConstant(values)
    ? `${middle} in each of ${values.length} runs`
    : `${middle} ± ${inWords(standardError(values))}`
}

/** Returns true if the mean differs from 0 by more than twice its standard error; false for a single difference. */
export const isClear = (differences: readonly number[]): boolean =>
  differences.length > 1 && Math.abs(mean(differences)) > 2 * standardError(differences)

/** Returns the smallest value that a share `p` of all values does not exceed; NaN without values. */
export function quantile(values: readonly number[], p: number): number {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.max(0, Math.ceil(p * sorted.length) - 1)] ?? NaN
}

/** Rounds to six decimals, which are equal on every machine. */
export const rounded = (value: number): number => Math.round(value * 1e6) / 1e6
