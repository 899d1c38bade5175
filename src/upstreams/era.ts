import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError, type Reason } from '../mesh/errors.ts'
import type { Era } from '../protocol/versions.ts'
import { formatDuration } from '../units/duration.ts'
import { orAborted, within } from './failure.ts'
import type { Eras, UpstreamSession, Upstream, KnownEra } from './upstream.ts'

/** An upstream of the modern era. */
export interface ModernUpstream extends Upstream {
  /** The server is asked anew what it is when an upstream session is opened next. */
  forget(): void
}

export interface EraOptions {
  /** `auto` finds out. */
  readonly era: Era | 'auto'
  readonly clock: Clock
  /** The `initialize` params of the gateway itself, by which it finds out what no client may decide for all. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  /** How long a handshake may take. */
  readonly handshakeMs: Millis
  /** Makes the two ways to the same endpoint; each tells of replies that say that its version is wrong. */
  readonly make: (onVersionError: (era: Era) => () => void) => {
    readonly legacy: Upstream
    readonly modern: ModernUpstream
  }
}

/**
 * How long a caller waits to find out whether the server speaks the caller's own era too, in milliseconds, when the other
 * one is at hand. An answer that comes later counts for those who come after.
 */
const SILENCE_MS: Millis = 2_000

/** Ends of an opening that tell that the server is there and does not speak this era. */
const refusals: ReadonlySet<string> = new Set<Reason>(['upstream_refused', 'bad_reply', 'upstream_status'])

export function isOtherEra({ reason }: GatewayError): boolean {
  return refusals.has(reason)
}

const silent = gatewayError('attempt_timeout', `the server said nothing within ${formatDuration(SILENCE_MS)}`)

/**
 * One endpoint that may speak either era, or both. Each caller is spoken for in its own era where the server speaks it,
 * and in the other one where it does not. Whether the server speaks an era is found out when somebody first needs it; a
 * server that cannot be reached, or that refuses both, is known no better than before.
 */
export class EraUpstream implements Upstream {
  readonly #options: EraOptions
  readonly #legacy: Upstream
  readonly #modern: ModernUpstream
  readonly #known: KnownEras
  readonly #upstreamSessions = new Map<UpstreamSession, { readonly era: Era; readonly caller: Caller }>()
  /** Somebody finds out about an era while the other one is at hand: nobody else has to. */
  readonly #finding = new Map<Era, Promise<unknown>>()
  /** On whose behalf the gateway sends `initialize` to learn what the server speaks. */
  readonly #self: Caller

  constructor(options: EraOptions) {
    const { legacy, modern } = options.make((era) => () => this.#doubt(era))
    this.#options = options
    this.#legacy = legacy
    this.#modern = modern
    this.#known = new KnownEras(options.era, options.clock)
    const { initializeParams } = options
    this.#self = {
      id: '',
      initializeParams,
      listening: false,
      era: 'legacy',
      receive: () => undefined,
    }
  }

  eras(): Eras {
    return this.#known.all
  }

  /** Both ways lead to the same endpoint. */
  probe(signal: Signal): Promise<boolean> {
    return this.#legacy.probe?.(signal) ?? Promise.resolve(false)
  }

  async open(caller: Caller, signal: Signal): Promise<UpstreamSession> {
    const { era } = this.#options
    if (era !== 'auto') return this.#openAs(era, caller, signal)
    const own = caller.era
    for (let finding; (finding = this.#finding.get(own)) !== undefined;) await orAborted(finding, signal)
    const speaks = this.#known.speaks(own)
    if (speaks === undefined && this.#known.speaks(otherEra(own)) === true)
      return this.#find(own, caller, signal)
    const first = speaks === false ? otherEra(own) : own
    try {
      return await this.#openAs(first, caller, signal)
    } catch (error) {
      return this.#openOther(first, error, caller, signal)
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#legacy.close(), this.#modern.close()])
  }

  /** Opens in an era of which nobody knows whether it is spoken, or else in the other one, which is. */
  #find(own: Era, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    const opening = this.#openEither(own, caller, signal)
    const found = opening.then(nothing, nothing).finally(() => this.#finding.delete(own))
    this.#finding.set(own, found)
    return opening
  }

  async #openEither(own: Era, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    try {
      return await this.#openSoon(own, caller, signal)
    } catch (error) {
      if (error === silent) return this.#openAs(otherEra(own), caller, signal)
      return this.#openOther(own, error, caller, signal)
    }
  }

  /** Opens in the era that is left when the first one was refused: only a server that takes it does not speak the first. */
  async #openOther(first: Era, refusal: unknown, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (!isGatewayError(refusal) || !isOtherEra(refusal)) throw refusal
    const second = otherEra(first)
    this.#modern.forget()
    let upstreamSession: UpstreamSession
    try {
      upstreamSession = await this.#openAs(second, caller, signal)
    } catch (error) {
      // When a server refuses both eras, its words on the handshake tell more.
      throw first === 'legacy' && isGatewayError(error) && isOtherEra(error) ? refusal : error
    }
    const takesOurs = first === 'legacy' ? await this.#takesOurs(signal) : false
    if (takesOurs === true) {
      void upstreamSession.close()
      throw refusal
    }
    if (takesOurs === false) this.#deny(first)
    return upstreamSession
  }

  /**
   * Whether a server that refused a client's `initialize` takes the gateway's own: then it refused the client, and not the era.
   * Undefined when it does not say.
   */
  async #takesOurs(signal: Signal): Promise<boolean | undefined> {
    try {
      void (await this.#openSoon('legacy', this.#self, signal)).close()
      return true
    } catch (error) {
      return isGatewayError(error) && isOtherEra(error) ? false : undefined
    }
  }

  /** Opens, unless the server is silent for so long that it is better to go without. */
  #openSoon(era: Era, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    const { clock, handshakeMs } = this.#options
    const end = new Cancellation()
    const gone = () => end.abort(signal.reason)
    if (signal.aborted) gone()
    else signal.addEventListener('abort', gone)
    const opening = within(handshakeMs, clock, end, (limit) => this.#openAs(era, caller, limit))
    let late = false
    return new Promise<UpstreamSession>((resolve, reject) => {
      const cancel = clock.after(SILENCE_MS, () => {
        late = true
        this.#known.note(era, false, 'silence')
        signal.removeEventListener('abort', gone)
        reject(silent)
      })
      opening
        .finally(() => {
          cancel()
          signal.removeEventListener('abort', gone)
        })
        .then(
          (upstreamSession) => (late ? void upstreamSession.close() : resolve(upstreamSession)),
          (error: unknown) => reject(error as GatewayError),
        )
    })
  }

  async #openAs(era: Era, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    const isKnown = this.#known.speaks(era) === true
    const wasDenied = this.#known.all[era]?.speaks === false
    // An earlier answer does not settle whether the server speaks the era now.
    if (era === 'modern' && !isKnown) this.#modern.forget()
    const upstreamSession = await (era === 'modern' ? this.#modern : this.#legacy).open(caller, signal)
    // A handshake confirms each time what is known.
    if (!isKnown || era === 'legacy') this.#known.note(era, true)
    if (wasDenied) this.#unbridge(era)
    this.#upstreamSessions.set(upstreamSession, { era, caller })
    upstreamSession.ended.addEventListener('abort', () => this.#upstreamSessions.delete(upstreamSession), {
      once: true,
    })
    return upstreamSession
  }

  /**
   * The server does not speak an era. Upstream sessions in it of which the server keeps nothing end, and the next call of each
   * begins anew: nobody would tell them. A session is the server's to end: it may refuse a new one for other reasons.
   */
  #deny(era: Era): void {
    this.#known.note(era, false)
    this.#end(era, ({ keepsState }) => !keepsState)
  }

  /**
   * The server speaks an era now that it did not: those of modern clients who were bridged begin anew in their own, as
   * their pooled upstream sessions might never end by themselves. One that somebody listens to, or a session, has something to lose.
   */
  #unbridge(era: Era): void {
    if (era === 'modern') this.#end('legacy', (_, caller) => caller.era === 'modern' && !caller.listening)
  }

  /** The server refuses the version: upstream sessions in that era end, and whoever comes next finds out anew. */
  #doubt(era: Era): void {
    if (this.#known.doubt(era)) this.#end(era, () => true)
  }

  #end(era: Era, which: (upstreamSession: UpstreamSession, caller: Caller) => boolean): void {
    for (const [upstreamSession, spoken] of this.#upstreamSessions)
      if (spoken.era === era && which(upstreamSession, spoken.caller)) void upstreamSession.close()
  }
}

const nothing = () => undefined

/** How long an answer is believed, in milliseconds. */
const TTL_MS: Millis = 600_000

/**
 * How long one is believed that rests on a silence, or that contradicts one still believed, in milliseconds: a server in
 * trouble may look like one that does not speak an era.
 */
const DOUBTFUL_MS: Millis = 60_000

interface Entry {
  readonly known: KnownEra
  /** The end of its time, on the monotonic clock. */
  until: Millis
}

export function otherEra(era: Era): Era {
  return era === 'modern' ? 'legacy' : 'modern'
}

/** The eras that one endpoint is known to speak or not to speak, each with a time and a cause of its own. */
export class KnownEras {
  readonly #clock: Clock
  readonly #isPinned: boolean
  readonly #entries = new Map<Era, Entry>()
  /** Eras whose version the server has refused since that was found out. */
  readonly #refused = new Set<Era>()

  /** `auto` finds out; an era that the config names is the only one that is spoken, and is never doubted. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#clock = clock
    this.#isPinned = era !== 'auto'
    if (era !== 'auto')
      this.#entries.set(era, {
        known: { speaks: true, decidedBy: 'config', at: clock.wall() },
        until: Infinity,
      })
  }

  /** The facts about each era, expired ones included. */
  get all(): Eras {
    return Object.fromEntries([...this.#entries].map(([era, { known }]) => [era, known]))
  }

  /** Whether the server speaks an era; undefined while nobody knows, or not any more. */
  speaks(era: Era): boolean | undefined {
    const entry = this.#entries.get(era)
    if (entry === undefined || this.#clock.now() >= entry.until) return undefined
    return entry.known.speaks
  }

  note(era: Era, speaks: boolean, decidedBy: 'probe' | 'silence' = 'probe'): void {
    if (this.#isPinned) return
    const isDoubtful = decidedBy === 'silence' || (!speaks && this.speaks(era) === true)
    const cause = this.#refused.delete(era) && !speaks ? 'version_error' : decidedBy
    const entry = this.#entries.get(era)
    const until = this.#clock.now() + (isDoubtful ? DOUBTFUL_MS : TTL_MS)
    // Each opening confirms it; what is told is since when it is so.
    if (entry?.known.speaks === speaks && entry.known.decidedBy === cause) entry.until = until
    else this.#entries.set(era, { known: { speaks, decidedBy: cause, at: this.#clock.wall() }, until })
  }

  /** The server has refused a version of this era: it is asked anew. False when that is not to be asked. */
  doubt(era: Era): boolean {
    const entry = this.#entries.get(era)
    if (this.#isPinned || entry?.known.speaks !== true) return false
    entry.until = 0
    this.#refused.add(era)
    return true
  }
}
