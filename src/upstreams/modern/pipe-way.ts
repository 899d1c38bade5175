import type { Caller, Message } from '../../mesh/call.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { MessageLink } from '../pipe/message-link.ts'
import type { ModernWay } from './modern-link.ts'
import { ownCall } from '../own-call.ts'
import type { Subscribe } from './subscription.ts'

/** The requests of one caller of the modern era, over a pipe that others may use as well. */
export function pipeWay(link: MessageLink, server: string, caller: Caller): ModernWay {
  return {
    send: (call, text, id) => link.exchange({ ...call, id, message: { text, value: call.message.value } }),
    subscribe: pipeSubscribe(link, server),
    abandon: (error) => link.abandon(caller, error),
  }
}

/** Subscribes by a request that stays unanswered; what it brings comes through its channel. */
function pipeSubscribe(link: MessageLink, server: string): Subscribe {
  return (text, subscription) => {
    const listening = new AbortController()
    const call = ownCall(server, 'subscriptions/listen', {}, listening.signal)
    const send = (message: Message) => void subscription.message(message)
    const channel = { ...call.channel, send }
    void link.exchange({ ...call, channel, message: { ...call.message, text } }).then((outcome) => {
      if (outcome.kind === 'answered') subscription.message(outcome.result)
      else subscription.broken(!link.ended.aborted)
    })
    return () => listening.abort(gatewayError('cancelled', 'nobody listens any more'))
  }
}
