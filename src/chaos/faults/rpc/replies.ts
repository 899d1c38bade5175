import { derive, type Call, type CallResult, type Outcome } from '../../../mesh/call.ts'
import { locate, splice } from '../../../protocol/json-span.ts'
import { ENDED, type RawReply, type Shot } from '../../fault.ts'

/** The call's id as its sender wrote it: numbers that JavaScript would round keep all of their digits. */
export function rawId({ id, message: { text } }: Call): string {
  const span = locate(text, ['id'])
  return span === undefined ? JSON.stringify(id) : text.slice(span.start, span.end)
}

/** The text of a reply under another id, which is given as JSON text. */
export function withId(text: string, id: string): string {
  const span = locate(text, ['id'])
  return span === undefined ? text : splice(text, [{ ...span, with: id }])
}

/**
 * A JSON-RPC error in place of a reply. Towards the agent it goes the usual way: only there is the agent's own id
 * known, which may not be that of the call.
 */
export function refusal(call: Call, raw: RawReply, shot: Shot): Outcome {
  const { wire: _, ...outcome } = shot.reply(call, raw)
  return outcome
}

/**
 * The call as it has to be sent on when its reply may be replaced: towards the agent that is possible only while
 * nothing of it is on the wire, so a stream begins no earlier than its first message.
 */
export function unopened(call: Call, { side }: Shot): Call {
  if (side === 'upstream') return call
  const { channel } = call
  return derive(call, {
    channel: {
      open: () => undefined,
      pause: (retryMs) => channel.pause(retryMs),
      send: (message, answer) => channel.send(message, answer),
    },
  })
}

/** The reply that a fault may break; undefined when it may not, and the journal is told why there was none. */
export function breakable(call: Call, outcome: Outcome, shot: Shot): CallResult | undefined {
  if (shot.released.aborted) return void shot.notApplicable(ENDED)
  if (outcome.kind !== 'answered') return void shot.notApplicable(NO_REPLY)
  if (shot.side === 'client' && call.record.firstByteAt !== undefined)
    return void shot.notApplicable('a part of the reply is with the agent already')
  return outcome.result
}

/** Why a fault that breaks a reply found nothing to do. */
export const NO_REPLY = 'the call failed by itself: there is no reply'
