import { derive, type Call, type Channel, type Outcome, type Service } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import type { Shot } from '../../fault.ts'
import { firstOf } from '../shared/first-of.ts'
import { givenUp } from '../shared/given-up.ts'

/**
 * Holds everything of a reply back for `stallMs` once `afterEvents` messages have passed: messages and the answer,
 * in their order. An answer that comes earlier begins the silence itself. Failures are not held.
 */
export function stallStream(
  call: Call,
  next: Service,
  shot: Shot,
  { afterEvents, stall }: { readonly afterEvents: number; readonly stall: Millis },
): Promise<Outcome> {
  let passed = 0
  /** Settles when everything that was held so far has been passed on. */
  let held: Promise<unknown> | undefined

  function begin(): Promise<unknown> {
    shot.note({ events: passed, stallMs: stall })
    return (held = shot.pause(stall, call))
  }

  function inOrder(pass: () => Promise<void> | undefined): Promise<void> {
    const passedOn = (held ?? Promise.resolve()).then(() => (call.signal.aborted ? undefined : pass()))
    held = passedOn
    return passedOn
  }

  const channel: Channel = {
    open() {
      if (held === undefined) call.channel.open()
      else void inOrder(() => void call.channel.open())
      if (afterEvents === 0 && held === undefined) void begin()
    },
    pause(retryMs) {
      if (held === undefined) call.channel.pause(retryMs)
      else void inOrder(() => void call.channel.pause(retryMs))
    },
    send(message, answer) {
      if (held === undefined && passed >= afterEvents) void begin()
      if (held !== undefined) return inOrder(() => call.channel.send(message, answer))
      const taken = call.channel.send(message, answer)
      if (++passed >= afterEvents) void begin()
      return taken
    },
  }

  return next(derive(call, { channel })).then((outcome) => {
    if (outcome.kind !== 'answered') {
      if (held === undefined) shot.notApplicable('there was no answer to hold back')
      return outcome
    }
    return firstOf(held ?? begin(), call.signal).then(() => (call.signal.aborted ? givenUp(call) : outcome))
  })
}
