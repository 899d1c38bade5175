import { z } from 'zod'
import { lengthOf } from '../../../experiments/guarded/spec.ts'
import { defineTool } from '../tool.ts'

/** Suggested time between polls of a run, in milliseconds. */
const POLL_MS = 5_000

export const startKey = z
  .string()
  .regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 of A-Z a-z 0-9 _ . -')
  .describe('Your key for this start. Repeat it to repeat the call.')

export const startRun = defineTool({
  name: 'start_run',
  title: 'Start a run',
  description:
    'Begins the run of your proposal: inside a signed envelope, or once a person approved. The same `key` returns the same run. The run ends by itself at `endsBy`, by its gate, or by stop_run; it does not end if you leave.',
  access: 'write',
  isDestructive: true,
  isIdempotent: true,
  input: z.strictObject({
    proposal: z.string().min(1).max(64).describe('Id from propose_run.'),
    key: startKey,
  }),
  output: z.object({ run: z.string(), state: z.string(), endsBy: z.string(), pollAfterMs: z.int() }),
  async run({ proposal, key }, { agent, operations: { agentRuns, clock } }) {
    const started = await agentRuns.starts.start(agent, proposal, key)
    if (!started.ok) return started
    const { id, state, spec, beganAt = clock.wall() } = started.run
    const endsBy = new Date(beganAt + lengthOf(spec) + spec.recovery.within).toISOString()
    return {
      ok: true,
      text: `Run ${id} has begun and ends by ${endsBy}. Poll get_run; stop_run ends the run at any time.`,
      data: { run: id, state, endsBy, pollAfterMs: POLL_MS },
    }
  },
})
