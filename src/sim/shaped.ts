import type { Call, Outcome } from '../mesh/call.ts'
import { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { WireShape } from '../mesh/wire-shape.ts'
import { transportError } from '../upstreams/http/http-reply.ts'

/**
 * Resolves to the outcome of a reply whose bytes faults delay, change or cut. Simulates only the duration and the end
 * of the reply, not the bytes.
 */
export async function shaped(clock: Clock, call: Call, outcome: Outcome): Promise<Outcome> {
  let came = outcome
  // The innermost fault acts on the reply first.
  const shapes = call.wire?.shapes?.toReversed() ?? []
  for (const shape of shapes) {
    came = await shapedBy(shape, clock, call, came)
    shape.over?.()
  }
  // The other faults act on any bytes, so a reply becomes invalid JSON only after all faults.
  const isGarbled = shapes.some(({ incident, done }) => incident?.kind === 'garble' && done.hasHappened)
  return came.kind === 'answered' && isGarbled ? NO_RESPONSE : came
}

async function shapedBy(shape: WireShape, clock: Clock, call: Call, outcome: Outcome): Promise<Outcome> {
  if (shape.released.aborted || outcome.kind !== 'answered') return outcome
  const { pace, incident, done } = shape
  const bytes = Buffer.byteLength(outcome.result.text)
  if (pace !== undefined) {
    const portions = Math.ceil(bytes / pace.bytes) - 1
    if (portions > 0 && !(await held(shape, clock, call, portions * pace.gapMs))) return outcome
  }
  done.bytes = bytes
  if (incident === undefined) return outcome
  const { at } = incident
  const passed = typeof at === 'object' && 'bytes' in at ? at.bytes : 0
  if (passed > bytes) return outcome
  done.hasHappened = true
  switch (incident.kind) {
    case 'stall':
      await held(shape, clock, call, incident.stallMs ?? 0)
      return outcome
    case 'garble':
      return outcome
    case 'reset':
    case 'close':
      done.bytes = passed
      return { kind: 'failed', error: incident.kind === 'reset' ? WAS_RESET : WAS_CLOSED }
  }
}

/** Returns the error that the HTTP transport gives for a broken connection. */
const ended = (code: string) => transportError({ code, message: '', name: 'Error' }, true)
const WAS_RESET = ended('ECONNRESET')
const WAS_CLOSED = ended('UND_ERR_SOCKET')
const NO_RESPONSE: Outcome = {
  kind: 'failed',
  error: gatewayError('bad_reply', 'the reply is not a JSON-RPC response (HTTP 200, application/json)', {
    sent: true,
  }),
}

/**
 * Holds a reply back for `ms` milliseconds. Ends early when the fault or the call ends; resolves to false if the call
 * has ended.
 */
async function held(shape: WireShape, clock: Clock, call: Call, ms: Millis): Promise<boolean> {
  const over = new Cancellation()
  const end = () => over.abort(undefined)
  shape.released.addEventListener('abort', end)
  call.signal.addEventListener('abort', end)
  const settled = clock.sleep(ms, over).then(
    () => true,
    () => false,
  )
  shape.done.hasHappened = true
  shape.holds?.(settled.then(() => undefined))
  const wasWhole = await settled
  shape.released.removeEventListener('abort', end)
  call.signal.removeEventListener('abort', end)
  return wasWhole || !call.signal.aborted
}
