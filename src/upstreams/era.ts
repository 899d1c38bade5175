import type { Signal } from '../mesh/cancel.ts'
import type { Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { GatewayError, Reason } from '../mesh/errors.ts'
import { openError } from './pipe/handshake.ts'
import type { Era, EraVerdict, Link, Upstream } from './upstream.ts'

/** An upstream of the modern era. */
export interface ModernUpstream extends Upstream {
  /** The server is asked anew what it is when a conversation is opened next. */
  forget(): void
}

export interface EraOptions {
  /** `auto` finds out. */
  readonly era: Era | 'auto'
  readonly clock: Clock
  /** Makes the two ways to the same endpoint; both tell of replies that say that the version is wrong. */
  readonly make: (onVersionError: () => void) => {
    readonly legacy: Upstream
    readonly modern: ModernUpstream
  }
}

/** How long a verdict is believed, in milliseconds. */
const TTL_MS: Millis = 600_000

/** Ends of an opening that tell that the server is there and does not speak this era. */
const otherEra: ReadonlySet<Reason> = new Set(['upstream_refused', 'bad_reply', 'upstream_status'])

export function isOtherEra({ reason }: GatewayError): boolean {
  return otherEra.has(reason)
}

/**
 * One endpoint that may speak either era. Asks it as a modern server first, and takes any answer that is none of
 * a modern server for a legacy one; a server that cannot be reached gets no verdict.
 */
export class EraUpstream implements Upstream {
  readonly #options: EraOptions
  readonly #legacy: Upstream
  readonly #modern: ModernUpstream
  readonly #links = new Map<Link, Era>()
  #verdict: EraVerdict | undefined
  /** The end of the verdict's time, on the monotonic clock. */
  #until: Millis = Infinity
  #cause: 'probe' | 'version_error' = 'probe'

  constructor(options: EraOptions) {
    const { legacy, modern } = options.make(() => this.#doubt())
    this.#options = options
    this.#legacy = legacy
    this.#modern = modern
    if (options.era === 'auto') return
    this.#verdict = { era: options.era, decidedBy: 'config', at: options.clock.wall() }
  }

  era(): EraVerdict | undefined {
    return this.#verdict
  }

  /** Both ways lead to the same endpoint. */
  probe(signal: Signal): Promise<boolean> {
    return this.#legacy.probe?.(signal) ?? Promise.resolve(false)
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    const verdict = this.#verdict
    if (verdict === undefined || this.#options.clock.now() >= this.#until) return this.#probe(caller, signal)
    try {
      return await this.#openAs(verdict.era, caller, signal)
    } catch (error) {
      if (verdict.decidedBy === 'config' || !isOtherEra(error as GatewayError)) throw error
      // It may have changed, or be in trouble: conversations that go on are none of that.
      return this.#probe(caller, signal)
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#legacy.close(), this.#modern.close()])
  }

  /** Opens the conversation in the era that turns out to be the server's. */
  async #probe(caller: Caller, signal: Signal): Promise<Link> {
    this.#modern.forget()
    try {
      const link = await this.#openAs('modern', caller, signal)
      this.#decide('modern')
      return link
    } catch (error) {
      if (!isOtherEra(error as GatewayError)) throw openError(error)
    }
    const link = await this.#openAs('legacy', caller, signal)
    this.#decide('legacy')
    return link
  }

  async #openAs(era: Era, caller: Caller, signal: Signal): Promise<Link> {
    const link = await (era === 'modern' ? this.#modern : this.#legacy).open(caller, signal)
    this.#links.set(link, era)
    link.ended.addEventListener('abort', () => this.#links.delete(link), { once: true })
    return link
  }

  /** Conversations in the other era end: the next call of each begins anew. */
  #decide(era: Era): void {
    const { clock } = this.#options
    this.#verdict = { era, decidedBy: this.#cause, at: clock.wall() }
    this.#until = clock.now() + TTL_MS
    this.#cause = 'probe'
    for (const [link, spoken] of this.#links) if (spoken !== era) void link.close()
  }

  /** The server does not speak what it was spoken to in: conversations end, and whoever comes next finds out anew. */
  #doubt(): void {
    if (this.#verdict === undefined || this.#verdict.decidedBy === 'config') return
    this.#until = 0
    this.#cause = 'version_error'
    for (const link of this.#links.keys()) void link.close()
  }
}
