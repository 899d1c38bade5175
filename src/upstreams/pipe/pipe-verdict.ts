import type { Clock } from '../../mesh/clock.ts'
import type { GatewayError } from '../../mesh/errors.ts'
import type { Connect } from './pipe.ts'
import type { Era, Eras } from '../upstream.ts'

interface Held {
  readonly era: Era
}

interface Verdict extends Held {
  readonly decidedBy: 'config' | 'probe'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/**
 * What a program is spoken to in, for as long as the gateway runs it. Found out with the first process, and kept in mind.
 * A process has one conversation, and that one era.
 */
export class PipeVerdict {
  readonly #era: Era | 'auto'
  readonly #clock: Clock
  #verdict: Verdict | undefined

  /** `auto` finds out. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#era = era
    this.#clock = clock
    if (era !== 'auto') this.#verdict = { era, decidedBy: 'config', at: clock.wall() }
  }

  get eras(): Eras {
    if (this.#verdict === undefined) return {}
    const { era, decidedBy, at } = this.#verdict
    return { [era]: { speaks: true, decidedBy, at } }
  }

  /**
   * Opens a conversation in the era that the program speaks. A process that ends over the first question is
   * started once more and spoken to in the legacy era. Rejects as `open` does.
   */
  async open<Link extends Held>(
    connect: Connect,
    open: (connect: Connect, era: Era | 'auto') => Promise<Link>,
  ): Promise<Link> {
    const legacy = this.#verdict?.era === 'legacy'
    const era = this.#era === 'auto' && legacy ? 'legacy' : this.#era
    let started = false
    const noting: Connect = async (events, signal) => {
      const pipe = await connect(events, signal)
      started = true
      return pipe
    }
    try {
      return this.#learn(await open(noting, era))
    } catch (error) {
      if (this.#verdict?.decidedBy !== 'config') this.#verdict = undefined
      const ended = started && (error as GatewayError).reason === 'upstream_unavailable'
      if (era !== 'auto' || !ended) throw error
    }
    return this.#learn(await open(connect, 'legacy'))
  }

  #learn<Link extends Held>(link: Link): Link {
    const { era } = link
    if (this.#verdict?.era !== era) this.#verdict = { era, decidedBy: 'probe', at: this.#clock.wall() }
    return link
  }
}
