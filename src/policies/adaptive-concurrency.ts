import { z } from 'zod'
import type { Layer } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { Limiter } from './adaptive-concurrency/limiter.ts'
import { Kept } from './state/kept.ts'

/** A number of calls at once. */
const concurrency = () => z.int().min(1).max(10_000)

const schema = z
  .strictObject({
    initial: concurrency().default(20).describe('How many calls at once are let through at first.'),
    min: concurrency().default(4).describe('The limit never falls below this.'),
    max: concurrency().default(200).describe('The limit never rises above this.'),
    smoothing: z
      .number()
      .min(0.01)
      .max(1)
      .default(0.2)
      .describe('How far one call moves the limit towards what its latency suggests; 1: all the way.'),
    tolerance: z
      .number()
      .min(1)
      .max(10)
      .default(1.5)
      .describe('How many times the long-term mean latency may rise before the limit falls.'),
    window: z
      .int()
      .min(10)
      .max(100_000)
      .default(600)
      .describe('Over about how many calls the long-term mean latency is taken.'),
  })
  .superRefine(({ initial, min, max }, context) => {
    const refuse = (key: string, message: string) =>
      context.addIssue({ code: 'custom', path: [key], message })
    if (min > max) refuse('min', `min must not exceed max (${max})`)
    else if (initial < min) refuse('initial', `initial must be at least min (${min})`)
    else if (initial > max) refuse('initial', `initial must not exceed max (${max})`)
  })
  .describe('Learns from latency how many calls a server can take at once, and rejects those above.')

/**
 * Limits the calls in flight to a server by what its latency says (Gradient2 of Netflix' concurrency-limits). The
 * estimate is per server: a tool that is slow by nature weighs in the mean as often as it is called.
 */
export const adaptiveConcurrency: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  optIn: true,
  build(config, { clock, state }, { set, server }): Layer {
    const limiters = state.get({ kind: 'adaptive-concurrency', set, server }, () => new Kept<Limiter>())
    const limiter = limiters.get(config, () => new Limiter(server, config, clock))
    return (next) => (call) => limiter.run(call, next)
  },
}
