import { z } from 'zod'
import type { Call, Layer, Outcome } from '../mesh/call.ts'
import { gatewayError, type Reason } from '../mesh/errors.ts'
import type { Policy } from '../mesh/policy.ts'
import { TimeLimit } from '../mesh/time-limit.ts'
import { duration } from '../units/duration.ts'
import { size } from '../units/size.ts'
import { keep, replay } from './idempotency/kept.ts'
import { isInvalid, keyOf } from './idempotency/key.ts'
import { LeavingChannel } from './idempotency/leaving-channel.ts'
import { runDetached } from './idempotency/run.ts'
import { Runs } from './idempotency/runs.ts'
import { joined, whileThere } from './idempotency/waiting.ts'

const schema = z
  .strictObject({
    key: z
      .enum(['explicit', 'auto'])
      .default('explicit')
      .describe(
        'Which tool calls have a key: those that name one in `_meta["dev.breakwater/idempotency-key"]`, or with `auto` also all others that are not read-only, by their arguments and forwarded headers.',
      ),
    window: duration({ min: 1_000 })
      .default(600_000)
      .describe('How long the answer to a key is kept after the call is over.'),
    limit: duration({ min: 1_000 })
      .default(300_000)
      .describe('How long a call with a key may run, whether or not its caller still waits.'),
    most: z
      .int()
      .min(1)
      .max(1_000_000)
      .default(10_000)
      .describe('Most keys that are remembered of one server; the oldest that are over go first.'),
    maxSize: size()
      .default(16 * 1024 ** 2)
      .describe('Most bytes of answers that are kept for one server; one of more than 1MiB is never kept.'),
  })
  .describe('Runs a tool call once per idempotency key, however often it is sent.')

/**
 * The first call with a key runs, apart from its caller: the usual reason for a second one is that the first was
 * given up too early. Who comes while it runs waits for the same outcome; who comes later gets it again.
 * What was not run, or may be run twice, leaves no trace.
 */
export const idempotency: Policy<z.output<typeof schema>> & { schema: typeof schema } = {
  schema,
  build(config, { clock, state }, scope): Layer {
    const { set, server } = scope
    const runs = state.get({ kind: 'idempotency', set, server }, () => new Runs(clock))
    const limit = new TimeLimit(clock, config.limit)
    return (next) => {
      return (call) => {
        if (call.tool === undefined) return next(call)
        const key = keyOf(call, config.key, scope)
        if (key === undefined) return next(call)
        if (isInvalid(key)) return rejected('invalid_arguments', key.problem)
        const known = runs.find(key.id)
        if (known === undefined) return first(call, key.id, key.fingerprint)
        if (known.fingerprint !== key.fingerprint)
          return rejected('idempotency_conflict', 'this idempotency key was used with other arguments')
        return 'kept' in known ? Promise.resolve(replay(known.kept, call)) : joined(call, known)
      }

      function first(call: Call, id: string, fingerprint: string): Promise<Outcome> {
        const { most, maxSize, window } = config
        const { record } = call
        if (call.signal.aborted) return next(call)
        if (!runs.makeRoom(most)) {
          const message = `too many calls with an idempotency key under way (${most} of ${most})`
          return rejected('idempotency_full', message)
        }
        const channel = new LeavingChannel(call.channel)
        const outcome = runDetached({ call, next, channel, limit, limitMs: config.limit, clock }, (ended) => {
          const kept = keep(ended, scope.effectOf(call), maxSize)
          if (kept === undefined) runs.forget(id)
          else runs.finish(id, { fingerprint, kept, expiresAt: clock.now() + window }, maxSize)
        })
        runs.begin(id, { fingerprint, record, outcome })
        return whileThere(call, outcome, record, () => channel.leave())
      }
    }
  },
}

function rejected(reason: Reason, message: string): Promise<Outcome> {
  return Promise.resolve({ kind: 'rejected', error: gatewayError(reason, message), by: 'idempotency' })
}
