import { z } from 'zod'
import { duration } from '../../units/duration.ts'

const ratio = (what: string) => z.number().gt(0).max(1).default(0.5).describe(what)

const minimum = (what: string) => z.number().int().min(1).max(1_000_000).default(10).describe(what)

const slow = z
  .strictObject({
    over: duration({ min: 1 }).describe(
      'A call that took longer than this was slow; so was one that its caller gave up after that.',
    ),
    ratio: ratio('Share of slow calls in the window, above 0 and at most 1, at which it opens.'),
  })
  .describe('Opens on slow calls too.')

const correctness = z
  .strictObject({
    ratio: ratio('Share of wrong replies among those that were checked, above 0 and at most 1, to open at.'),
    minimum: minimum('Fewest checked replies in the window before their ratio counts.'),
  })
  .describe('Opens on replies that came and were wrong: only those that were checked count.')

/** Settings of the breaker; `{}` is all defaults. */
export const breakerSchema = z
  .strictObject({
    window: duration({ min: 100 }).default(30_000).describe('How far back calls count.'),
    ratio: ratio('Share of failed calls in the window, above 0 and at most 1, at which it opens.'),
    minimum: minimum('Fewest completed calls in the window before a ratio counts.'),
    consecutive: z
      .number()
      .int()
      .min(0)
      .max(1_000_000)
      .default(5)
      .describe('Failures in a row at which it opens, however few calls there were; 0: off.'),
    open: duration({ min: 1 })
      .default(5_000)
      .describe(
        'How long it stays open the first time; it doubles with each opening that no recovery follows. It ends early when a server that could not be reached can be reached again, at most 3 times before a call succeeds.',
      ),
    maxOpen: duration({ min: 1 })
      .default(60_000)
      .describe('What the open time doubles up to, before jitter.'),
    jitter: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe('By which share the open time is varied, up or down, from 0 to 1.'),
    probes: z
      .number()
      .int()
      .min(1)
      .max(100)
      .default(1)
      .describe('How many calls may try it at a time when half-open, and how many have to succeed.'),
    probeTimeout: duration({ min: 1 })
      .default(30_000)
      .describe(
        'When a probe that has not come back is given up, and counts as failed: more than a good call takes. The wait for an agent that is asked does not count.',
      ),
    slow: z
      .union([z.literal(false), slow])
      .default(false)
      .describe('What slow calls do; false: nothing.'),
    correctness: z
      .union([z.literal(false), correctness])
      .default({ ratio: 0.5, minimum: 10 })
      .describe('What wrong replies do; false: nothing.'),
  })
  .refine(({ open, maxOpen }) => open <= maxOpen, {
    path: ['open'],
    error: '`open` may be at most `maxOpen`',
  })
  .describe('Stops calling a tool that fails, or answers wrongly, and tries it again later.')

export type BreakerConfig = z.output<typeof breakerSchema>
