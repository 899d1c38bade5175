import { z } from 'zod'
import type { Layer, Outcome } from '../mesh/call.ts'
import type { Policy } from '../mesh/policy.ts'
import { noteOverruled } from '../mesh/record.ts'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'
import { failureOf, isGone } from './degrade/failure.ts'
import { toFallback } from './degrade/fallback.ts'
import { LastKnownGood, staleAnswers } from './degrade/last-known-good.ts'
import { prepared } from './degrade/prepared.ts'

const fallback = z
  .strictObject({
    tool: z
      .string()
      .min(1)
      .max(256)
      .describe('The other tool, as its server knows it. It gets the same arguments.'),
    server: z.string().min(1).optional().describe('Its server, if it is another one.'),
  })
  .describe('Another tool that answers instead.')

const lastKnownGood = z
  .strictObject({
    maxAge: duration({ min: 1_000 }).default(300_000).describe('The oldest answer that is given again.'),
    most: z.int().min(1).max(100_000).default(100).describe('Most answers that are kept of one tool.'),
    maxSize: size()
      .default(1024 ** 2)
      .describe('Most bytes of answers that are kept of one tool.'),
  })
  .describe(
    'The last good answer to the same arguments and forwarded headers; only of tools that are known to be read-only.',
  )

const fixed = z
  .strictObject({
    text: z.string().max(100_000).optional().describe('Text for the agent.'),
    structuredContent: z
      .record(z.string(), z.unknown())
      .optional()
      .describe('A result; for a tool with an `outputSchema` it has to fit.'),
  })
  .refine(({ text, structuredContent }) => text !== undefined || structuredContent !== undefined, {
    error: 'needs "text" or "structuredContent"',
  })
  .describe('An answer that is always the same.')

const schema = z
  .strictObject({
    fallback: fallback.optional(),
    lastKnownGood: lastKnownGood.optional(),
    static: fixed.optional(),
    notice: z
      .boolean()
      .default(true)
      .describe('Whether a text block tells the model too that it was degraded.'),
  })
  .refine((ways) => ways.fallback ?? ways.lastKnownGood ?? ways.static, {
    error: 'needs at least one of "fallback", "lastKnownGood" and "static"',
  })
  .describe(
    'Answers a tool call that failed in another way, and says so: `fallback`, `lastKnownGood`, `static`.',
  )

/** Gives a worse answer in place of none, and flags it: of the ways that are configured, the first that has one. */
export const degrade: Policy<z.output<typeof schema>> & { schema: typeof schema; optIn: true } = {
  schema,
  optIn: true,
  build(config, kit, scope): Layer {
    const { set, server, tool } = scope
    const { notice } = config
    const detour = config.fallback && toFallback(config.fallback, scope, notice)
    const stale =
      config.lastKnownGood &&
      staleAnswers(
        kit.state.get({ kind: 'last-known-good', set, server, tool }, () => new LastKnownGood()),
        config.lastKnownGood,
        kit.clock,
        scope,
        notice,
      )
    const last = config.static && prepared(config.static, notice)
    return (next) => (call) => {
      if (call.tool === undefined) return next(call)
      return next(call).then((outcome) => {
        const failure = failureOf(call, outcome)
        if (failure === undefined) {
          stale?.keep(call, outcome)
          return outcome
        }
        const atHand = () => stale?.find(call, failure) ?? last?.(call, failure)
        const instead = (other: Outcome | undefined): Outcome => {
          if (other === undefined) return outcome
          noteOverruled(call.record, outcome)
          return other
        }
        // What is at hand may come at the very end of the deadline; another server's answer may not.
        if (detour === undefined || call.signal.aborted) return instead(atHand())
        return detour(call, failure).then((other) => instead(other ?? (isGone(call) ? undefined : atHand())))
      })
    }
  },
}
