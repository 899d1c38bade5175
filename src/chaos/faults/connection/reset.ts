import { z } from 'zod'
import { derive, type Call, type Channel, type Outcome } from '../../../mesh/call.ts'
import { gatewayError } from '../../../mesh/errors.ts'
import type { FaultType, Shot } from '../../fault.ts'
import { endOf } from '../shared/given-up.ts'
import { requests } from '../shared/requests.ts'
import { bytes, sizeOf } from './bytes.ts'

const schema = z.strictObject({
  at: z
    .union([
      z.literal('headers'),
      z.strictObject({
        afterBytes: bytes(0).describe('The message in which this byte lies is lost, and all after it.'),
      }),
    ])
    .default('headers')
    .describe(
      'When the connection breaks: before the first byte of the reply, or after so many bytes of it.',
    ),
})

type Config = z.output<typeof schema>

/**
 * The connection breaks while the reply comes: the server had the call and may have run it, and nobody will know.
 * What is left of the exchange with the server is cancelled. Messages before the reply count as bytes of it; they
 * arrive whole or not at all, because nobody reads half a message.
 */
export const reset = {
  schema,
  about: 'The connection breaks while the reply comes: the call may have run.',
  methods: requests,
  layer:
    ({ at }, shot) =>
    (next) =>
    (call) => {
      const cut = new Cut(at, call, shot)
      return next(derive(call, { signal: cut.signal, channel: cut.channel })).then((outcome) =>
        cut.end(outcome),
      )
    },
} satisfies FaultType<Config>

/** One connection that is about to break. */
class Cut {
  readonly channel: Channel
  readonly #call: Call
  readonly #shot: Shot
  readonly #message: string
  readonly #limit: number
  readonly #end: ReturnType<typeof endOf>
  #bytes = 0
  #isCut = false

  constructor(at: Config['at'], call: Call, shot: Shot) {
    const { channel } = call
    const isPipe = shot.world.kindOf(call)?.transport === 'stdio'
    this.#call = call
    this.#shot = shot
    this.#message = isPipe ? 'the pipe to the server broke (EPIPE)' : 'the connection broke (ECONNRESET)'
    this.#limit = at === 'headers' ? -1 : at.afterBytes
    this.#end = endOf(call)
    this.channel = {
      open: () => {
        // The agent's stream begins with its first message: one that has begun can hardly be broken off any more.
        if (this.#passes(0) && shot.side === 'upstream') channel.open()
      },
      pause: (retryMs) => {
        if (this.#passes(0)) channel.pause(retryMs)
      },
      send: (message, answer) => (this.#passes(sizeOf(message)) ? channel.send(message, answer) : undefined),
    }
  }

  get signal() {
    return this.#end.end
  }

  end(outcome: Outcome): Outcome {
    this.#end.leave()
    if (!this.#isCut) {
      if (outcome.kind !== 'answered') {
        this.#shot.notApplicable('the call failed by itself before a byte of its reply had come')
        return outcome
      }
      if (this.#passes(sizeOf(outcome.result))) {
        if (!this.#shot.released.aborted) this.#shot.notApplicable(`the reply has ${this.#bytes} bytes only`)
        return outcome
      }
    }
    this.#shot.note({ effect: 'reset', bytes: Math.min(this.#bytes, Math.max(0, this.#limit)) })
    const broken = this.#shot.disconnect(this.#call, this.#message)
    // Whatever the record says: whoever answers has had the request.
    return broken.kind === 'failed' ? { ...broken, error: { ...broken.error, sent: true } } : broken
  }

  /** Whether so many bytes more get through; the first that do not are the end of it. */
  #passes(more: number): boolean {
    if (this.#isCut) return false
    this.#bytes += more
    if (this.#bytes <= this.#limit || this.#shot.released.aborted) return true
    this.#isCut = true
    // Towards the agent it is the agent's connection that is gone: no fault of the server's, which must not pay for it.
    const reason = this.#shot.side === 'client' ? 'cancelled' : 'upstream_disconnected'
    this.#end.end.abort(gatewayError(reason, this.#message, { sent: true }))
    return false
  }
}
