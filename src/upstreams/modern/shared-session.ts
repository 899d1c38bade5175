import type { Caller, Message } from '../../mesh/call.ts'
import type { Clock } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { whenAborted } from '../failure.ts'
import { ownCall } from '../own-call.ts'
import type { MessageSession } from '../pipe/message-session.ts'
import type { SessionStates } from '../shared/session-state.ts'
import type { Discover } from './discover.ts'
import { ModernSession, type ModernWay } from './modern-session.ts'
import type { Subscribe } from './modern-listener.ts'
import type { ToolCallRules } from './tool-call-rules.ts'

export interface SharedSessionTerms {
  readonly server: string
  readonly clock: Clock
  readonly tools: ToolCallRules
  readonly states: SessionStates
}

/** Returns a caller's session over a pipe to a modern server. The session ends with the pipe. */
export function modernSharedSession(
  upstreamSession: MessageSession,
  discover: Discover,
  terms: SharedSessionTerms,
  caller: Caller,
): ModernSession {
  const way = pipeWay(upstreamSession, terms.server, caller)
  const state = terms.states.of(caller)
  const session = new ModernSession(
    { ...terms, discover, way, state },
    caller,
    upstreamSession.initializeResult,
  )
  whenAborted(upstreamSession.ended, (error) => session.end(error))
  return session
}

/** Sends a caller's requests over a pipe, which several callers may share. */
function pipeWay(upstreamSession: MessageSession, server: string, caller: Caller): ModernWay {
  return {
    send: (call, text, id) =>
      upstreamSession.exchange({ ...call, id, message: { text, value: call.message.value } }),
    subscribe: pipeSubscribe(upstreamSession, server),
    abandon: (error) => upstreamSession.abandon(caller, error),
  }
}

/**
 * Subscribes with a request that stays unanswered until the subscription ends; notifications come through the request's
 * channel.
 */
function pipeSubscribe(upstreamSession: MessageSession, server: string): Subscribe {
  return (text, subscription) => {
    const listening = new AbortController()
    const call = ownCall(server, 'subscriptions/listen', {}, listening.signal)
    const send = (message: Message) => void subscription.message(message)
    const channel = { ...call.channel, send }
    void upstreamSession
      .exchange({ ...call, channel, message: { ...call.message, text } })
      .then((outcome) => {
        if (outcome.kind === 'answered') subscription.message(outcome.result)
        else subscription.broken(!upstreamSession.ended.aborted)
      })
    return () => listening.abort(gatewayError('cancelled', 'nobody listens any more'))
  }
}
