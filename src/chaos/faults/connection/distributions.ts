import { z } from 'zod'
import type { Millis } from '../../../mesh/clock.ts'
import { duration } from '../../../units/duration.ts'
import { normalQuantile } from './normal-quantile.ts'

/** Longest delay where a distribution has no end of its own and no `cap` was given. */
const CAP_MS = 600_000

const cap = duration({ min: 1 })
  .optional()
  .describe(
    'No delay is longer. Without it: 10 minutes for normal, lognormal and pareto; the others end by themselves.',
  )

const capBelow = (what: string) => `cap must not be below ${what}: nearly every delay would be the cap`

/** What a delay is drawn from, by `kind`. All its fields are durations, but `alpha`. */
export const schema = z
  .discriminatedUnion('kind', [
    z
      .strictObject({ kind: z.literal('fixed'), delay: duration().describe('Always this long.'), cap })
      .refine((d) => d.delay <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('delay') }),
    z
      .strictObject({
        kind: z.literal('uniform'),
        min: duration().default(0).describe('The shortest.'),
        max: duration().describe('The longest.'),
        cap,
      })
      .refine((d) => d.min <= d.max, { path: ['max'], message: 'max must not be below min' })
      .refine((d) => d.min <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('min') }),
    z
      .strictObject({
        kind: z.literal('normal'),
        mean: duration().describe('The mean; what falls below zero is no delay.'),
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
        alpha: z.number().positive().max(100).describe('The tail: the smaller, the heavier. 1.16 is 80/20.'),
        cap,
      })
      .refine((d) => d.scale <= (d.cap ?? Infinity), { path: ['cap'], message: capBelow('scale') }),
    z.strictObject({
      kind: z.literal('empirical'),
      values: z
        .array(duration())
        .min(1)
        .max(10_000)
        .describe('Measured delays: each is as likely as any other.'),
      cap,
    }),
  ])
  .describe('How long a delay is.')

export type Distribution = z.output<typeof schema>

/**
 * A delay of this distribution in milliseconds, made by the inverse of its cumulative function from the one draw
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
