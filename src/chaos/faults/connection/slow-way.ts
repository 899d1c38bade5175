import type { Call, Channel, Outcome } from '../../../mesh/call.ts'
import { givenUp, orGivenUp } from '../shared/given-up.ts'
import { sizeOf } from './bytes.ts'

/** How a wait was over; that of `Shot.pause`. */
type Waited = 'over' | 'released' | 'aborted'

/**
 * A slow way home for one call: each message of the server, and at last its reply, waits its turn and then its
 * time. Whoever sends has to wait as well, as behind a socket that is full. Of a call that was given up, what is
 * still on its way is dropped.
 */
export class SlowWay {
  /** To be put in place of the call's own. */
  readonly channel: Channel
  readonly #call: Call
  readonly #wait: (bytes: number) => Promise<Waited>
  #last: Promise<unknown> = Promise.resolve()

  /** `wait` takes the time that so many bytes need. */
  constructor(call: Call, wait: (bytes: number) => Promise<Waited>) {
    const { channel } = call
    this.#call = call
    this.#wait = wait
    this.channel = {
      open: () => void this.#inTurn(0, () => channel.open()),
      pause: (retryMs) => void this.#inTurn(0, () => channel.pause(retryMs)),
      send: (message, answer) => this.#inTurn(sizeOf(message), () => channel.send(message, answer)),
    }
  }

  /** Brings the outcome home; one that is no reply has no bytes. */
  bring(outcome: Outcome): Promise<Outcome> {
    const bytes = outcome.kind === 'answered' ? sizeOf(outcome.result) : 0
    const brought = this.#inTurn(bytes, () => outcome).then((home) => home ?? givenUp(this.#call))
    return orGivenUp(brought, this.#call)
  }

  #inTurn<Done>(bytes: number, task: () => Done | Promise<Done>): Promise<Done | undefined> {
    const done = this.#last
      .then(() => this.#wait(bytes))
      .then((waited) => (waited === 'aborted' ? undefined : task()))
    // A message that could not be delivered holds up none behind it.
    this.#last = done.catch(() => undefined)
    return done
  }
}
