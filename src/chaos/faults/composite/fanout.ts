import { z } from 'zod'
import { derive, type Call, type Channel, type Outcome, type Service } from '../../../mesh/call.ts'
import type { Signal } from '../../../mesh/cancel.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import { replaceAt } from '../../../protocol/json-span.ts'
import { errorText, METHOD_NOT_FOUND } from '../../../protocol/jsonrpc.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { firstOf } from '../shared/first-of.ts'
import { endOf, givenUp } from '../shared/given-up.ts'

const schema = z
  .strictObject({
    factor: z.int().min(2).max(100).default(3).describe('How many calls become of one.'),
  })
  // The field stands beside these in a plan. What writes must not run three times, whoever allows it.
  .refine((fault) => !('allowWrites' in fault && fault.allowWrites === true), {
    path: ['allowWrites'],
    error: 'fanout.amplify sends calls again: it can only hit tools that are known to be read-only',
  })

/** `fanout.amplify`: extra load, of calls that change nothing. */
export const fanout: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'Each call is sent several times, one after another; the answer is that to the first.',
  layer:
    ({ factor }, shot) =>
    (next) =>
    (call) =>
      amplified(call, next, shot, factor),
}

async function amplified(call: Call, next: Service, shot: Shot, factor: number): Promise<Outcome> {
  const first = await next(call)
  const { end, leave } = endOf(call)
  let sent = 1
  while (sent < factor && !call.signal.aborted && !shot.released.aborted) {
    const copy = next(copyOf(call, sent++, end))
    await firstOf(copy, shot.released, call.signal)
  }
  // A copy that is still under way would otherwise outlive the fault.
  end.abort(gatewayError('cancelled', 'nobody waits for it any more'))
  leave()
  shot.note({ sent })
  return call.signal.aborted ? givenUp(call) : first
}

/** The same call under an id of its own, of which the agent hears nothing. */
function copyOf(call: Call, number: number, signal: Signal): Call {
  const id = `${call.id}.${number}`
  const { text, value } = call.message
  return derive(call, {
    id,
    message: { text: replaceAt(text, ['id'], id), value: { ...value, id } },
    channel: nobody,
    signal,
  })
}

/** Nobody answers the questions of a server about a copy. */
const nobody: Channel = {
  open: () => undefined,
  pause: () => undefined,
  send(message, answer) {
    const { id } = message.value
    if (answer === undefined || (typeof id !== 'string' && typeof id !== 'number')) return undefined
    answer(errorText(id, METHOD_NOT_FOUND, 'Method not found')).catch(() => undefined)
    return undefined
  },
}
