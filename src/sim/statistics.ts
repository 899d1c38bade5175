/** Statistics over several runs of a simulation. */

export const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length

/** The standard deviation of a sample; 0 where there is only one. */
export function deviation(values: readonly number[]): number {
  const middle = mean(values)
  const squares = values.reduce((sum, value) => sum + (value - middle) ** 2, 0)
  return values.length < 2 ? 0 : Math.sqrt(squares / (values.length - 1))
}

/** The standard error of the mean of a sample; 0 where there is only one. */
export const standardError = (values: readonly number[]): number =>
  deviation(values) / Math.sqrt(values.length)

/** Whether all values of a sample are equal: its standard error is unknown then, not 0. */
export const isConstant = (values: readonly number[]): boolean => values.every((value) => value === values[0])

/** The mean of the values of several runs with its standard error; of values that are all the same, the value and how often it came. */
export function meanInWords(values: readonly number[], inWords: (value: number) => string): string {
  const middle = inWords(mean(values))
  if (values.length === 1) return `${middle} in the only run`
  return isConstant(values)
    ? `${middle} in each of ${values.length} runs`
    : `${middle} ± ${inWords(standardError(values))}`
}

/** Whether the mean of these differences is further from 0 than twice its standard error; never where there is only one. */
export const isClear = (differences: readonly number[]): boolean =>
  differences.length > 1 && Math.abs(mean(differences)) > 2 * standardError(differences)

/** The smallest value that a share of `p` of all values does not exceed; NaN of none. */
export function quantile(values: readonly number[], p: number): number {
  const sorted = Float64Array.from(values).sort()
  return sorted[Math.max(0, Math.ceil(p * sorted.length) - 1)] ?? NaN
}

/** With six decimals: so many are the same on every machine. */
export const rounded = (value: number): number => Math.round(value * 1e6) / 1e6
