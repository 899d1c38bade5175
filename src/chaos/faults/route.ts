import { z } from 'zod'
import type { Call, Layer, Outcome } from '../../mesh/call.ts'
import { resultIn, type Injection, type FaultType } from '../fault.ts'
import { firstOf } from './shared.ts'

/** Returns a layer that sends calls to another server, and marks the answers as corrupted. */
export function sending(injection: Injection, server: string, readdress: (call: Call) => Call): Layer {
  function corrupted(outcome: Outcome): Outcome {
    const result = resultIn(outcome)
    return result === undefined ? outcome : injection.change(outcome, result)
  }

  return (next) => (call) => {
    const sent =
      call.server === server ? undefined : injection.faultEnvironment.sendTo(readdress(call), server)
    if (sent === undefined) {
      injection.notApplicable(`there is no other server ${server}`)
      return next(call)
    }
    injection.note({ server })
    // Once released, no call may wait for the wrong server any more.
    return firstOf(sent, injection.released).then(() =>
      injection.released.aborted ? next(call) : sent.then(corrupted),
    )
  }
}

const schema = z.strictObject({
  server: z.string().min(1).describe('The server that gets the call, under the same tool name.'),
})

const wrongBackend: FaultType<z.output<typeof schema>> = {
  schema,
  family: 'route',
  about: 'A call goes to the wrong server, whose answer may look right.',
  use: 'To find out whether anybody notices answers of a wrong server, as after a routing mistake.',
  seen: 'A plausible answer of another server.',
  containedBy: {
    policies: ['verdict'],
    how: 'Only verdict can notice, and only if the tool has an outputSchema that the answer breaks.',
  },
  sides: ['upstream'],
  example: { name: 'wrong-backend', rate: 0.05, ttl: '10m', match: { server: 'search' }, server: 'modern' },
  sendsTo: ({ server }) => server,
  layer: ({ server }, injection) => sending(injection, server, (call) => call),
}

/** Faults that send calls to another server. */
export const routeFaults = { 'route.wrong_backend': wrongBackend } as const
