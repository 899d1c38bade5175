import { derive, type Call, type Channel, type Outcome, type Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { notificationText } from '../../../protocol/jsonrpc.ts'
import { metaOf } from '../../../protocol/meta.ts'
import type { Shot } from '../../fault.ts'
import { firstOf } from '../shared/first-of.ts'
import { endOf, givenUp } from '../shared/given-up.ts'

const PROGRESS = 'notifications/progress'

/**
 * Keeps the answer back and reports progress every `everyMs` instead, until the call is given up or the shot is
 * released. The server's own reports make way for ours, because progress may only grow. Failures are not held.
 */
export function onlyProgress(call: Call, next: Service, shot: Shot, everyMs: Millis): Promise<Outcome> {
  const token = metaOf(call.message.value, 'params', 'progressToken')
  if (typeof token !== 'string' && typeof token !== 'number') {
    shot.notApplicable('the call asks for no progress')
    return next(call)
  }
  const { end, leave } = endOf(call)
  let active = true
  let reports = 0

  const channel: Channel = {
    open: () => call.channel.open(),
    pause: (retryMs) => call.channel.pause(retryMs),
    send(message, answer) {
      if (active && message.value.method === PROGRESS) return undefined
      return call.channel.send(message, answer)
    },
  }

  const ticking = derive(call, { signal: end })
  async function report(): Promise<void> {
    while ((await shot.pause(everyMs, ticking)) === 'over') {
      const params = { progressToken: token, progress: ++reports }
      const value = { jsonrpc: '2.0', method: PROGRESS, params }
      await call.channel.send({ text: notificationText(PROGRESS, params), value })
    }
    active = false
  }

  const reported = report()
  return next(derive(call, { channel })).then(async (outcome) => {
    if (outcome.kind === 'answered') await firstOf(reported, call.signal)
    end.abort(undefined)
    leave()
    shot.note({ reports })
    return outcome.kind === 'answered' && call.signal.aborted ? givenUp(call) : outcome
  })
}
