/** What several runs of a simulation come to. */

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
