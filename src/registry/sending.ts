import { type Call, derive, type Outcome, type Service } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { GatewayError, Reason } from '../mesh/errors.ts'
import { replaceAt } from '../protocol/json-span.ts'
import { DEADLINE_KEY, withMeta } from '../protocol/meta.ts'
import { stamped } from '../telemetry/tracing/call-trace.ts'
import { abortError, failure, orAborted } from '../upstreams/failure.ts'
import { replyToCaller } from '../upstreams/pipe/renumber.ts'
import type { Link } from '../upstreams/upstream.ts'
import type { BoundLink, Links } from './links.ts'

interface SendingParts {
  readonly links: Links
  readonly clock: Clock
  /** How many replicas there are to go to. */
  readonly replicas: number
  /** Whether callers may get another session in place of theirs, without a word. */
  readonly mayMove: () => boolean
  /** A call got no answer of a replica, for a reason that is the replica's; undefined: it was to go to any. */
  readonly suspect: (replica: number | undefined, reason: Reason) => void
}

/** Ends of a call after which a replica may be in trouble. */
const suspicious: ReadonlySet<Reason> = new Set([
  'attempt_timeout',
  'upstream_disconnected',
  'upstream_status',
  'upstream_unavailable',
])

/** A call's way to its server: over its caller's conversation, which is begun if need be. */
export function sendOver({ links, clock, replicas, mayMove, suspect }: SendingParts): Service {
  function exchange(bound: BoundLink, call: Call): Promise<Outcome> {
    const { record } = call
    record.attempts++
    record.replica = bound.replica
    bound.calls++
    return exchangeOver(bound.link, call, clock).then(
      (outcome) => {
        links.left(bound)
        if (outcome.kind === 'failed') look(call, bound, outcome.error)
        return outcome
      },
      (defect: unknown) => {
        links.left(bound)
        throw defect
      },
    )
  }

  async function sendFirst(call: Call): Promise<Outcome> {
    let opened: BoundLink
    try {
      opened = await orAborted(links.of(call.caller, call.replica), call.signal)
    } catch (error) {
      if (call.signal.aborted) return failure(call, abortError(call.signal))
      suspect(call.replica ?? (replicas === 1 ? 0 : undefined), (error as GatewayError).reason)
      // Whatever became of the handshake: the call itself was not sent.
      return { kind: 'failed', error: { ...(error as GatewayError), sent: false } }
    }
    return exchange(opened, call)
  }

  /**
   * A failure may say more than that one call failed. The calls that are under way over the same conversation have
   * connections of their own, and end as they may.
   */
  function look({ caller }: Call, bound: BoundLink, { reason, sent }: GatewayError): void {
    const isGone = reason === 'upstream_unavailable' && replicas > 1 && mayMove()
    // A lost session that the server does not open again: it may speak another era by now.
    const isRefused = reason === 'upstream_refused' && !sent
    if (isGone || isRefused || reason === 'session_lost') links.retire(caller, bound)
    if (suspicious.has(reason)) suspect(bound.replica, reason)
  }

  return (call) => {
    const bound = links.current(call.caller, call.replica)
    return bound === undefined ? sendFirst(call) : exchange(bound, call)
  }
}

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
