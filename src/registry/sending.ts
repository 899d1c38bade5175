import type { Call, Caller, Outcome, Service } from '../mesh/call.ts'
import type { Clock } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import { orAborted } from '../upstreams/failure.ts'
import type { Link } from '../upstreams/upstream.ts'
import type { BoundLink, Links } from './links.ts'
import { exchangeOver } from './outgoing.ts'

export interface SendingParts {
  readonly links: Links
  readonly clock: Clock
  /** How many replicas there are to go to. */
  readonly replicas: number
  /** A call could not reach the server. */
  readonly suspect: () => void
}

/** A call's way to its server: over its caller's conversation, which is begun if need be. */
export function sendOver({ links, clock, replicas, suspect }: SendingParts): Service {
  function exchange({ link, replica }: BoundLink, call: Call): Promise<Outcome> {
    call.record.attempts++
    call.record.replica = replica
    return exchangeOver(link, call, clock).then((outcome) => {
      if (outcome.kind === 'failed') look(call.caller, link, outcome.error)
      return outcome
    })
  }

  async function sendFirst(call: Call): Promise<Outcome> {
    let opened: BoundLink
    try {
      opened = await orAborted(links.of(call.caller, call.replica), call.signal)
    } catch (error) {
      suspect()
      return { kind: 'failed', error: error as GatewayError }
    }
    return exchange(opened, call)
  }

  /** A failure may say more than that one call failed. */
  function look(caller: Caller, link: Link, { reason }: GatewayError): void {
    if (reason === 'session_lost') void links.dropLink(caller, link)
    if (reason !== 'upstream_unavailable' && reason !== 'upstream_disconnected') return
    suspect()
    if (replicas > 1) void links.dropLink(caller, link)
  }

  return (call) => {
    const bound = links.current(call.caller, call.replica)
    return bound === undefined ? sendFirst(call) : exchange(bound, call)
  }
}
