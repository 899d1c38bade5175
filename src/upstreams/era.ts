import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Caller } from '../mesh/call.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { gatewayError, isGatewayError, type GatewayError, type Reason } from '../mesh/errors.ts'
import type { Era } from '../protocol/versions.ts'
import { formatDuration } from '../units/duration.ts'
import { orAborted, within } from './failure.ts'
import type { Eras, UpstreamSession, Upstream, KnownEra } from './upstream.ts'

export interface ModernUpstream extends Upstream {
  /** Asks the server about itself again when the next upstream session opens. */
  forget(): void
}

export interface EraOptions {
  /** `auto` asks the server. */
  readonly era: Era | 'auto'
  readonly clock: Clock
  /** The gateway's own `initialize` params, for questions no client may decide for all. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly handshakeMs: Millis
  /** Creates both upstreams of the endpoint; each reports replies about a wrong version. */
  readonly make: (onVersionError: (era: Era) => () => void) => {
    readonly legacy: Upstream
    readonly modern: ModernUpstream
  }
}

/**
 * How long a caller waits in its own era, in milliseconds, if the other is available. Late answers serve later callers.
 */
const SILENCE_MS: Millis = 2_000

/** Errors of an existing server that does not speak the era. */
const refusals: ReadonlySet<string> = new Set<Reason>(['upstream_refused', 'bad_reply', 'upstream_status'])

export function isOtherEra({ reason }: GatewayError): boolean {
  return refusals.has(reason)
}

const silent = gatewayError('attempt_timeout', `the server said nothing within ${formatDuration(SILENCE_MS)}`)

/**
 * One endpoint with either era or both. Each caller gets its own era if the server speaks it, otherwise the other. The
 * eras are determined on first use; an unreachable server, or a refusal of both eras, leaves the knowledge unchanged.
 */
export class EraUpstream implements Upstream {
  readonly #options: EraOptions
  readonly #legacy: Upstream
  readonly #modern: ModernUpstream
  readonly #known: KnownEras
  readonly #upstreamSessions = new Map<UpstreamSession, { readonly era: Era; readonly caller: Caller }>()
  /** Eras under examination while the other era is available: no second examination is needed. */
  readonly #finding = new Map<Era, Promise<unknown>>()
  /** The caller for the gateway's own `initialize` to learn the server's era. */
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

  /** Both upstreams have the same endpoint. */
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

  /** Opens in an era not known to be spoken, otherwise in the other, known era. */
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

  /** Opens in the second era after a refusal of the first: only success there proves the first era unspoken. */
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
   * Whether a server accepts the gateway's own `initialize` after refusing a client's: then the server refused the
   * client, not the era. Undefined when the server does not say.
   */
  async #takesOurs(signal: Signal): Promise<boolean | undefined> {
    try {
      void (await this.#openSoon('legacy', this.#self, signal)).close()
      return true
    } catch (error) {
      return isGatewayError(error) && isOtherEra(error) ? false : undefined
    }
  }

  /** Opens a session, unless the server stays silent for too long. */
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
    // An earlier answer does not settle the server's current era.
    if (era === 'modern' && !isKnown) this.#modern.forget()
    const upstreamSession = await (era === 'modern' ? this.#modern : this.#legacy).open(caller, signal)
    // Each handshake confirms the known era.
    if (!isKnown || era === 'legacy') this.#known.note(era, true)
    if (wasDenied) this.#unbridge(era)
    this.#upstreamSessions.set(upstreamSession, { era, caller })
    upstreamSession.ended.addEventListener('abort', () => this.#upstreamSessions.delete(upstreamSession), {
      once: true,
    })
    return upstreamSession
  }

  /**
   * Notes an unspoken era. Stateless upstream sessions in this era end, because nobody would notify them; their next
   * calls start anew. Sessions with state are the server's to end: the server may refuse new sessions for other
   * reasons.
   */
  #deny(era: Era): void {
    this.#known.note(era, false)
    this.#end(era, ({ keepsState }) => !keepsState)
  }

  /**
   * The server now speaks an era it did not speak before. Bridged modern clients start anew in their own era, because
   * their pooled upstream sessions might never end. Sessions with listeners or state stay.
   */
  #unbridge(era: Era): void {
    if (era === 'modern') this.#end('legacy', (_, caller) => caller.era === 'modern' && !caller.listening)
  }

  /** The server refuses the version: upstream sessions in this era end, and the next caller asks again. */
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

/** How long to believe silence or contradiction, in milliseconds: a troubled server may seem not to speak an era. */
const DOUBTFUL_MS: Millis = 60_000

interface Entry {
  readonly known: KnownEra
  /** Expiry, on the monotonic clock. */
  until: Millis
}

export function otherEra(era: Era): Era {
  return era === 'modern' ? 'legacy' : 'modern'
}

/** The eras an endpoint is known to speak or not to speak, each with its own time and cause. */
export class KnownEras {
  readonly #clock: Clock
  readonly #isPinned: boolean
  readonly #entries = new Map<Era, Entry>()
  /** Eras with a version refusal since the last answer. */
  readonly #refused = new Set<Era>()

  /** `auto` asks; an era from the config is the only era, and is never doubted. */
  constructor(era: Era | 'auto', clock: Clock) {
    this.#clock = clock
    this.#isPinned = era !== 'auto'
    if (era !== 'auto')
      this.#entries.set(era, {
        known: { speaks: true, decidedBy: 'config', at: clock.wall() },
        until: Infinity,
      })
  }

  /** The facts about each era, expired facts included. */
  get all(): Eras {
    return Object.fromEntries([...this.#entries].map(([era, { known }]) => [era, known]))
  }

  /** Whether the server speaks an era; undefined when unknown or expired. */
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
    // Each opening renews the expiry; `at` stays the time of the first answer.
    if (entry?.known.speaks === speaks && entry.known.decidedBy === cause) entry.until = until
    else this.#entries.set(era, { known: { speaks, decidedBy: cause, at: this.#clock.wall() }, until })
  }

  /** Notes a refused version of this era: the server is asked again. Returns false when no question is due. */
  doubt(era: Era): boolean {
    const entry = this.#entries.get(era)
    if (this.#isPinned || entry?.known.speaks !== true) return false
    entry.until = 0
    this.#refused.add(era)
    return true
  }
}
