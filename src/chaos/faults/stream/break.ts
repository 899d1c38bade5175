import { derive, type Call, type Channel, type Outcome, type Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import type { Shot } from '../../fault.ts'
import { endOf } from '../shared/given-up.ts'

/**
 * Ends the stream of a reply with `end()` once `afterEvents` messages have passed, after `after` milliseconds, or in
 * place of an answer that comes earlier. The exchange with the server is cancelled. A call that fails by itself fails as it does.
 */
export function breakStream(
  call: Call,
  next: Service,
  shot: Shot,
  { afterEvents, after }: { readonly afterEvents: number; readonly after?: Millis | undefined },
  end: () => Outcome,
): Promise<Outcome> {
  return new Promise((resolve) => {
    const { end: exchange, leave } = endOf(call)
    let passed = 0
    let over = false

    function finish(outcome: Outcome): void {
      over = true
      cancel?.()
      leave()
      resolve(outcome)
    }

    function breakOff(): void {
      if (over || shot.released.aborted || call.signal.aborted) return
      shot.note({ events: passed })
      finish(end())
      // Nobody is to blame for the server's part of it.
      exchange.abort(gatewayError('cancelled', 'nobody reads the stream any more', { sent: true }))
    }

    const cancel = after === undefined ? undefined : shot.clock.after(after, breakOff)

    const channel: Channel = {
      open() {
        if (over) return
        call.channel.open()
        if (afterEvents === 0) breakOff()
      },
      pause(retryMs) {
        if (!over) call.channel.pause(retryMs)
      },
      send(message, answer) {
        if (passed >= afterEvents) breakOff()
        if (over) return undefined
        const taken = call.channel.send(message, answer)
        if (++passed < afterEvents) return taken
        if (taken === undefined) breakOff()
        // The connection holds until the last event is through.
        else void taken.then(breakOff, breakOff)
        return taken
      },
    }

    void next(derive(call, { channel, signal: exchange })).then((outcome) => {
      if (outcome.kind === 'answered') breakOff()
      else if (!over) shot.notApplicable('there was no answer to break off')
      if (!over) finish(outcome)
    })
  })
}
