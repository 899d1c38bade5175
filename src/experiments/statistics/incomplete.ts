/**
 * The regularised incomplete gamma and beta functions, the base of all distributions here. The factors in front are
 * probabilities of the Poisson and the binomial distribution by their saddle point (C. Loader, "Fast and Accurate
 * Computation of Binomial Probabilities", 2000), so nothing cancels at large counts. The rest are a series and a
 * continued fraction for gamma (M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 1964, 6.5.29 and
 * 6.5.31) and a continued fraction for beta (A. DiDonato and A. Morris, "Algorithm 708", ACM Transactions on
 * Mathematical Software 18(3), 1992). The relative error is below 1e-12 for parameters up to 1e7.
 */

/** Relative changes below this number are ignored. */
const EPSILON = 2 ** -53

/** Replaces a denominator of 0 in Lentz' algorithm. */
const TINY = 1e-300

/**
 * Maximum number of terms, enough for parameters of 1e12: the number of terms grows like the square root of the
 * parameters.
 */
const MOST_TERMS = 10_000_000

/** Stirling's series has full precision from this argument on. */
const STIRLING_FROM = 16

/** ln x! − ln(√(2πx) (x/e)^x), the error of Stirling's formula, for x > 0. */
function stirlingError(x: number): number {
  if (x < STIRLING_FROM) {
    // x! = (x + k)! / ((x + 1) … (x + k))
    let product = 1
    let above = x
    while (above < STIRLING_FROM) product *= ++above
    return stirlingError(above) + stirling(above) - stirling(x) - Math.log(product)
  }
  const square = x * x
  const inner = 1 / 1260 - (1 / 1680 - (1 / 1188 - 691 / 360_360 / square) / square) / square
  return (1 / 12 - (1 / 360 - inner / square) / square) / x
}

/** The logarithm of Stirling's formula for x!. */
const stirling = (x: number): number => (x + 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI)

/** x ln(x / mean) + mean − x, without cancellation where both are near (Loader's `bd0`). */
function deviance(x: number, mean: number): number {
  const apart = x - mean
  if (Math.abs(apart) >= 0.1 * (x + mean)) return x * Math.log(x / mean) - apart
  const ratio = apart / (x + mean)
  let sum = apart * ratio
  let term = 2 * x * ratio
  for (let odd = 3; ; odd += 2) {
    term *= ratio * ratio
    const next = sum + term / odd
    if (next === sum) return sum
    sum = next
  }
}

/** x^a e^−x / Γ(a + 1): the Poisson probability of `a` where `x` are expected. */
function poissonTerm(a: number, x: number): number {
  return Math.exp(-stirlingError(a) - deviance(a, x)) / Math.sqrt(2 * Math.PI * a)
}

/** x^a y^b / B(a, b), with y = 1 − x, for a, b > 0 and x in (0, 1). */
export function betaTerm(a: number, b: number, x: number, y: number): number {
  const n = a + b
  const exponent =
    stirlingError(n) - stirlingError(a) - stirlingError(b) - deviance(a, n * x) - deviance(b, n * y)
  return Math.exp(exponent) * Math.sqrt((a / n) * (b / (2 * Math.PI)))
}

/**
 * numerator(1) / (denominator(1) + numerator(2) / (denominator(2) + …)), by the algorithm of W. Lentz (1976) as changed
 * by I. Thompson and A. Barnett (1986).
 */
function continuedFraction(numerator: (i: number) => number, denominator: (i: number) => number): number {
  let value = TINY
  let front = TINY
  let back = 0
  for (let i = 1; i < MOST_TERMS; i++) {
    const above = numerator(i)
    const below = denominator(i)
    back = 1 / (below + above * back || TINY)
    front = below + above / front || TINY
    const change = front * back
    value *= change
    if (Math.abs(change - 1) <= 2 * EPSILON) return value
  }
  throw new RangeError('a continued fraction did not converge')
}

/** Both tails of a distribution, each with full relative precision, however small. Their sum is 1. */
export interface Tails {
  readonly lower: number
  readonly upper: number
}

/** Returns the regularised P(a, x) and Q(a, x), for a > 0 and x ≥ 0. Throws a RangeError for other arguments. */
export function incompleteGamma(a: number, x: number): Tails {
  if (!(a > 0 && x >= 0)) throw new RangeError(`incomplete gamma of a = ${a}, x = ${x}`)
  if (x === 0) return { lower: 0, upper: 1 }
  if (x === Infinity) return { lower: 1, upper: 0 }
  const front = poissonTerm(a, x)
  if (x < a + 1) {
    let sum = 1
    let term = 1
    for (let i = 1; term > sum * EPSILON; i++) {
      term *= x / (a + i)
      sum += term
    }
    return { lower: front * sum, upper: 1 - front * sum }
  }
  const upper =
    front *
    a *
    continuedFraction(
      (i) => (i === 1 ? 1 : (i - 1) * (a - i + 1)),
      (i) => x - a + 2 * i - 1,
    )
  return { lower: 1 - upper, upper }
}

/**
 * Returns the regularised I_x(a, b) and its complement I_y(b, a), for a, b > 0 and x in [0, 1]. `y`: a more precise
 * 1 − x, if known. Throws a RangeError for other arguments.
 */
export function incompleteBeta(a: number, b: number, x: number, y = 1 - x): Tails {
  if (!(a > 0 && b > 0 && x >= 0 && y >= 0)) {
    throw new RangeError(`incomplete beta of a = ${a}, b = ${b}, x = ${x}`)
  }
  if (x === 0 || y === 0) return { lower: x === 0 ? 0 : 1, upper: y === 0 ? 0 : 1 }
  if (b * x > a * y) {
    const { lower, upper } = incompleteBeta(b, a, y, x)
    return { lower: upper, upper: lower }
  }
  const fraction = continuedFraction(
    (i) => {
      if (i === 1) return 1
      const m = i - 1
      const step = a + 2 * m - 1
      return ((m * (a + m - 1)) / step) * ((a + b + m - 1) / step) * (b - m) * x * x
    },
    (i) => {
      const m = i - 1
      const before = m === 0 ? 0 : (m * (b - m) * x) / (a + 2 * m - 1)
      return m + before + ((a + m) * (a * y - b * x + 1 + m * (1 + y))) / (a + 2 * m + 1)
    },
  )
  const lower = betaTerm(a, b, x, y) * fraction
  return { lower, upper: 1 - lower }
}
