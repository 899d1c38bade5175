import { z } from 'zod'
import type { Millis } from '../../mesh/clock.ts'
import { duration } from '../../units/duration.ts'

/** The longest delay of a distribution without upper end and without `cap`, in milliseconds. */
const CAP_MS = 600_000

const cap = duration({ min: 1 })
  .optional()
  .describe(
    'The longest delay. Without it: 10 minutes for normal, lognormal and pareto; the other kinds have an upper end.',
  )

const capBelow = (what: string) => `cap must not be below ${what}: nearly every delay would be the cap`

/** The distribution of a delay, by `kind`. All its fields are durations, except `alpha`. */
export const schema = z
  .discriminatedUnion('kind', [
    z
      .strictObject({ kind: z.literal('fixed'), delay: duration().describe('Always this delay.'), cap })
      .refine((d) => d.delay <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('delay') }),
    z
      .strictObject({
        kind: z.literal('uniform'),
        min: duration().default(0).describe('The shortest delay.'),
        max: duration().describe('The longest delay.'),
        cap,
      })
      .refine((d) => d.min <= d.max, { path: ['max'], message: 'max must not be below min' })
      .refine((d) => d.min <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('min') }),
    z
      .strictObject({
        kind: z.literal('normal'),
        mean: duration().describe('The mean; a value below zero means no delay.'),
        sd: duration().describe('The standard deviation.'),
        cap,
      })
      .refine((d) => d.mean <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('mean') }),
    z
      .strictObject({
        kind: z.literal('lognormal'),
        median: duration({ min: 1 }).describe('Half of all delays are shorter.'),
        p99: duration({ min: 1 }).describe('One delay in a hundred is longer.'),
        cap,
      })
      .refine((d) => d.median <= d.p99, { path: ['p99'], message: 'p99 must not be below median' })
      .refine((d) => d.median <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('median') }),
    z
      .strictObject({
        kind: z.literal('pareto'),
        scale: duration({ min: 1 }).describe('The shortest delay.'),
        alpha: z
          .number()
          .positive()
          .max(100)
          .describe(
            'The shape of the tail: a smaller number gives more long delays. 1.16 gives the 80/20 rule.',
          ),
        cap,
      })
      .refine((d) => d.scale <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('scale') }),
    z.strictObject({
      kind: z.literal('empirical'),
      values: z.array(duration()).min(1).max(10_000).describe('Measured delays, all equally likely.'),
      cap,
    }),
  ])
  .describe('How long a delay is.')
  .meta({ examples: [{ kind: 'fixed', delay: '1s' }] })

export type Distribution = z.output<typeof schema>

/**
 * Returns a delay of this distribution in milliseconds. Applies the inverse of the cumulative function to the draw
 * `delay` in [0, 1): the same draw gives the same delay.
 */
export function sample(distribution: Distribution, draw: (purpose: string) => number): Millis {
  const ms = quantile(distribution, draw('delay'))
  return Math.max(0, Math.min(ms, distribution.cap ?? (isEndless(distribution) ? CAP_MS : ms)))
}

function quantile(distribution: Distribution, u: number): Millis {
  switch (distribution.kind) {
    case 'fixed':
      return distribution.delay
    case 'uniform':
      return distribution.min + u * (distribution.max - distribution.min)
    case 'normal':
      return distribution.mean + distribution.sd * normalQuantile(u)
    case 'lognormal': {
      const sigma = Math.log(distribution.p99 / distribution.median) / normalQuantile(0.99)
      return distribution.median * Math.exp(sigma * normalQuantile(u))
    }
    case 'pareto':
      return distribution.scale * (1 - u) ** (-1 / distribution.alpha)
    case 'empirical':
      return distribution.values[Math.floor(u * distribution.values.length)] ?? 0
  }
}

const isEndless = ({ kind }: Distribution): boolean =>
  kind === 'normal' || kind === 'lognormal' || kind === 'pareto'

/** Probabilities below LOW, or above 1 - LOW, use the approximation of the tails. */
const LOW = 0.02425

/** Draws stay at least this far from 0 and 1, so no quantile is infinite. */
const NEAREST = 2 ** -54

const a = [
  -3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.38357751867269e2, -3.066479806614716e1,
  2.506628277459239,
]
const b = [
  -5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1,
  1,
]
const c = [
  -7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734, 4.374664141464968,
  2.938163982698783,
]
const d = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1]

/**
 * Returns the value below which a standard normal variable falls with probability `p` in [0, 1). Uses the rational
 * approximation of P. J. Acklam ("An algorithm for computing the inverse normal cumulative distribution function",
 * 2003): its relative error is below 1.15e-9 everywhere.
 */
export function normalQuantile(p: number): number {
  const u = Math.min(Math.max(p, NEAREST), 1 - NEAREST)
  if (u < LOW) return tail(u)
  if (u > 1 - LOW) return -tail(1 - u)
  const q = u - 0.5
  const r = q * q
  return (polynomial(a, r) * q) / polynomial(b, r)
}

function tail(u: number): number {
  const q = Math.sqrt(-2 * Math.log(u))
  return polynomial(c, q) / polynomial(d, q)
}

/** Returns the value of a polynomial at `x`, by Horner's rule. The first coefficient belongs to the highest power. */
function polynomial(coefficients: readonly number[], x: number): number {
  let sum = 0
  for (const coefficient of coefficients) sum = sum * x + coefficient
  return sum
}
