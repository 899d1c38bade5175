import { betaTerm, incompleteBeta, incompleteGamma, type Tails } from './incomplete.ts'

/**
 * Distributions of test statistics, to a relative error of 1e-10 or less in either tail. They are computed from the
 * incomplete gamma and beta functions and the identities in M. Abramowitz and I. Stegun, "Handbook of Mathematical
 * Functions", 1964, 26.4.19 (chi-square; the normal is its root), 26.5.27 (Student) and 26.5.24 (binomial).
 */

/** Returns both tails of the standard normal distribution, at any z. */
export function normalTails(z: number): Tails {
  return tailsAt(z, incompleteGamma(0.5, (z * z) / 2).upper / 2)
}

/** Returns P(Z ≤ z) for a standard normal Z. */
export const normalCdf = (z: number): number => normalTails(z).lower

/** Returns the z with P(Z ≤ z) = `p`, for p in (0, 1). Throws a RangeError for other p. */
export function normalQuantile(p: number): number {
  return symmetricQuantile(
    p,
    (z) => normalTails(z).upper,
    (z) => Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI),
  )
}

/** Returns both tails of Student's t distribution at any t; `df` > 0 may be fractional or infinite. */
export function studentTails(t: number, df: number): Tails {
  if (df === Infinity) return normalTails(t)
  const { x, y } = studentToBeta(t, df)
  return tailsAt(t, incompleteBeta(df / 2, 0.5, x, y).lower / 2)
}

/** Returns the t with P(T ≤ t) = `p`, for p in (0, 1) and df > 0. Throws a RangeError for other arguments. */
export function studentQuantile(p: number, df: number): number {
  if (df === Infinity) return normalQuantile(p)
  const density = (t: number) => {
    const { x, y } = studentToBeta(t, df)
    return betaTerm(df / 2, 0.5, x, y) / t
  }
  return symmetricQuantile(p, (t) => studentTails(t, df).upper, density)
}

/** Returns the argument of the beta distribution (df/2, 1/2) for t: x = df / (df + t²), and y = 1 − x. */
function studentToBeta(t: number, df: number): { x: number; y: number } {
  const ratio = (t * t) / df
  return { x: 1 / (1 + ratio), y: 1 / (1 + 1 / ratio) }
}

/**
 * Returns both tails of the number of successes X in `n` independent trials with success probability `p` in [0, 1]:
 * lower is P(X ≤ k), upper P(X > k). Exact, and as fast for millions of trials as for ten. Throws a RangeError for a p
 * outside of [0, 1].
 */
export function binomialTails(k: number, n: number, p: number): Tails {
  const whole = Math.floor(k)
  if (whole < 0) return { lower: 0, upper: 1 }
  if (whole >= n) return { lower: 1, upper: 0 }
  return incompleteBeta(n - whole, whole + 1, 1 - p, p)
}

/** Returns the tails of a distribution symmetric about 0, given the `outer` tail beyond |point|. */
function tailsAt(point: number, outer: number): Tails {
  return point < 0 ? { lower: outer, upper: 1 - outer } : { lower: 1 - outer, upper: outer }
}

/** Steps of Newton's algorithm or bisection: enough for any bracket of doubles. */
const MOST_STEPS = 200

/**
 * Returns the quantile of a distribution symmetric about 0, given its upper tail and density. Uses Newton's algorithm
 * on the logarithm of the tail, which is nearly straight even far out. Uses bisection where a step would leave the
 * bracket.
 */
function symmetricQuantile(p: number, upper: (x: number) => number, density: (x: number) => number): number {
  if (!(p > 0 && p < 1)) throw new RangeError(`no quantile of probability ${p}`)
  if (p === 0.5) return 0
  const tail = Math.min(p, 1 - p)
  let high = 1
  while (upper(high) > tail) high *= 2
  let low = high === 1 ? 0 : high / 2
  let x = (low + high) / 2
  for (let step = 0; step < MOST_STEPS; step++) {
    const at = upper(x)
    if (at > tail) low = x
    else high = x
    const newton = x + (Math.log(at / tail) * at) / density(x)
    const next = newton > low && newton < high ? newton : (low + high) / 2
    const settled = Math.abs(next - x) <= 1e-15 * x
    x = next
    if (settled) break
  }
  return p < 0.5 ? -x : x
}
