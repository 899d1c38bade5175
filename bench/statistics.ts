/** Returns the value below which the share `q` (0 … 1) of `sorted` lies, by nearest rank; NaN of an empty list. */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? NaN
}

/** A figure over the rounds: half of the rounds lie between the quartiles. */
export interface Spread {
  readonly lower: number
  readonly median: number
  readonly upper: number
}

export function spread(values: readonly number[]): Spread {
  const sorted = Float64Array.from(values).sort()
  return { lower: quantile(sorted, 0.25), median: medianOf(sorted), upper: quantile(sorted, 0.75) }
}

/** Returns the middle value; for an even number of values, the mean of the middle two. */
function medianOf(sorted: Float64Array): number {
  const half = sorted.length / 2
  const [lower, upper] = [sorted[Math.ceil(half) - 1], sorted[Math.floor(half)]]
  return lower === undefined || upper === undefined ? NaN : (lower + upper) / 2
}
