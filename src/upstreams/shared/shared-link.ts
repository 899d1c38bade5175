import type { Signal } from '../../mesh/cancel.ts'
import type { Caller } from '../../mesh/call.ts'
import { whenAborted } from '../failure.ts'
import { MessageLink } from '../pipe/message-link.ts'
import type { ModernLink } from '../modern/modern-link.ts'
import { modernSeat, type SeatTerms } from '../modern/modern-seat.ts'
import type { Connect } from '../pipe/pipe.ts'
import { Seat } from './seat.ts'
import { SharedAudience } from './shared-audience.ts'
import type { Terms } from '../pipe/terms.ts'
import type { Era, Link } from '../upstream.ts'

/**
 * What a shared process is told of its clients. They have no roots: what one client opens to a server would
 * be open to all.
 */
const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } }

export type SharedTerms = Omit<Terms, 'audience' | 'shared'> & SeatTerms

/** One conversation that many callers take part in, and that outlives each of them. */
export class SharedLink {
  readonly #link: MessageLink
  readonly #terms: SeatTerms
  readonly #audience: SharedAudience
  readonly #seats = new Set<Seat | ModernLink>()

  /** Rejects with a `GatewayError`, and leaves nothing behind then. */
  static async open(connect: Connect, terms: SharedTerms, signal: Signal): Promise<SharedLink> {
    const audience = new SharedAudience(terms.server, terms.clock)
    const hello = { ...terms.hello, capabilities }
    const link = await MessageLink.open(connect, { ...terms, hello, audience, shared: true }, signal)
    return new SharedLink(link, terms, audience)
  }

  private constructor(link: MessageLink, terms: SeatTerms, audience: SharedAudience) {
    this.#link = link
    this.#terms = terms
    this.#audience = audience
    whenAborted(link.ended, (error) => {
      audience.close()
      for (const seat of this.#seats) seat.end(error)
    })
  }

  get era(): Era {
    return this.#link.era
  }

  get ended(): AbortSignal {
    return this.#link.ended
  }

  /** Lets a caller take part. It may leave and come back, but not be here twice. */
  attach(caller: Caller): Link {
    const seat = this.#seatFor(caller)
    this.#seats.add(seat)
    whenAborted(seat.ended, () => this.#seats.delete(seat))
    return seat
  }

  #seatFor(caller: Caller): Seat | ModernLink {
    const { discover } = this.#link
    return discover === undefined
      ? new Seat(this.#link, this.#audience, caller)
      : modernSeat(this.#link, discover, this.#terms, caller)
  }

  close(): Promise<void> {
    return this.#link.close()
  }
}
