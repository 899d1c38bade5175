import { derive, type Call, type Outcome } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import { replaceAt } from '../protocol/json-span.ts'
import { DEADLINE_KEY, withMeta } from '../protocol/meta.ts'
import { stamped } from '../telemetry/tracing/stamp.ts'
import { replyToCaller } from '../upstreams/pipe/renumber.ts'
import type { Link } from '../upstreams/upstream.ts'

/** Counts what is sent again: an id must not come twice in one conversation. */
let resent = 0

/** Sends a call as its server has to see it: with the time that is left, and under an id that is new. */
export function exchangeOver(link: Link, call: Call, clock: Clock): Promise<Outcome> {
  const traced = stamped(call)
  if (call.attempt === 1 && call.deadline?.reserveMs === undefined) return link.exchange(traced)
  const outgoing = withNewId(withTimeLeft(traced, clock))
  const exchanged = link.exchange(outgoing)
  if (outgoing.id === call.id) return exchanged
  return exchanged.then((outcome) =>
    outcome.kind === 'answered'
      ? { ...outcome, result: { ...replyToCaller(call, outcome.result), status: outcome.result.status } }
      : outcome,
  )
}

function withTimeLeft(call: Call, clock: Clock): Call {
  const { deadline, message } = call
  if (deadline?.reserveMs === undefined) return call
  const leftMs = Math.max(1, Math.floor(deadline.at - clock.now() - deadline.reserveMs))
  return derive(call, { message: withMeta(message, 'params', DEADLINE_KEY, leftMs) })
}

function withNewId(call: Call): Call {
  if (call.attempt === 1) return call
  const id = `${call.id}~${++resent}`
  const { text, value } = call.message
  return derive(call, { id, message: { text: replaceAt(text, ['id'], id), value: { ...value, id } } })
}
