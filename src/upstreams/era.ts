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
  /** The gateway's own `initialize` params, which test the server's era independently of any client. */
  readonly initializeParams: Readonly<Record<string, unknown>>
  readonly handshakeMs: Millis
  /** Creates both upstreams of the endpoint; each reports replies about a wrong version. */
  readonly make: (onVersionError: (era: Era) => () => void) => {
    readonly legacy: Upstream
    readonly modern: ModernUpstream
  }
}

/**
 * How long a caller waits for an answer in its own era before it uses the other era, in milliseconds. A later answer
 * serves later callers.
 */
const SILENCE_MS: Millis = 2_000

/** Errors that come from a running server and may mean that it does not speak the era. */
const refusals: ReadonlySet<string> = new Set<Reason>(['upstream_refused', 'bad_reply', 'upstream_status'])

export function isOtherEra({ reason }: GatewayError): boolean {
  return refusals.has(reason)
}

const silent = gatewayError('attempt_timeout', `the server said nothing within ${formatDuration(SILENCE_MS)}`)

/**
 * An endpoint that speaks one era or both. Each caller gets its own era if the server speaks it, otherwise the other
 * era. The eras are determined on first use; an unreachable server, or a refusal of both eras, changes nothing in this
 * knowledge.
 */
export class EraUpstream implements Upstream {
  readonly #options: EraOptions
  readonly #legacy: Upstream
  readonly #modern: ModernUpstream
  readonly #known: KnownEras
  readonly #upstreamSessions = new Map<UpstreamSession, { readonly era: Era; readonly caller: Caller }>()
  /**
   * Tests under way of an era, while the other era is known to work. Later callers wait for the test instead of
   * starting another.
   */
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

  /** Probes over the legacy upstream, because both upstreams have the same endpoint. */
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

  /**
   * Opens a session in the caller's own era, which the server may not speak; if that fails, in the other era, which the
   * server speaks.
   */
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

  /**
   * Opens a session in the other era after a refusal in the first. Only success in the other era proves that the server
   * does not speak the first.
   */
  async #openOther(first: Era, refusal: unknown, caller: Caller, signal: Signal): Promise<UpstreamSession> {
    if (!isGatewayError(refusal) || !isOtherEra(refusal)) throw refusal
    const second = otherEra(first)
    this.#modern.forget()
    let upstreamSession: UpstreamSession
    try {
      upstreamSession = await this.#openAs(second, caller, signal)
    } catch (error) {
      // When a server refuses both eras, its refusal of `initialize` explains more.
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
   * Resolves to true if the server accepts the gateway's own `initialize` after refusing a client's `initialize`: the
   * server then refused the client, not the era. Undefined when the server gives no clear answer.
   */
  async #takesOurs(signal: Signal): Promise<boolean | undefined> {
    try {
      void (await this.#openSoon('legacy', this.#self, signal)).close()
      return true
    } catch (error) {
      return isGatewayError(error) && isOtherEra(error) ? false : undefined
    }
  }

  /** Opens a session. Rejects with `silent` if the server does not answer within `SILENCE_MS`. */
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
    // An earlier answer about the server's era may be outdated.
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
   * Notes that the server does not speak an era. Closes the stateless upstream sessions of this era, because nothing
   * else would end them; the next calls open new sessions. Keeps sessions with state: the server ends such sessions
   * itself, and may have refused a new session for other reasons.
   */
  #deny(era: Era): void {
    this.#known.note(era, false)
    this.#end(era, ({ keepsState }) => !keepsState)
  }

  /**
   * Called when the server speaks an era that it did not speak before. Closes the legacy sessions of modern callers,
   * whose next calls then use their own era: such pooled sessions might never end otherwise. Keeps the sessions of
   * listening callers.
   */
  #unbridge(era: Era): void {
    if (era === 'modern') this.#end('legacy', (_, caller) => caller.era === 'modern' && !caller.listening)
  }

  /**
   * Handles a refusal of the version: closes all upstream sessions of this era, and the next caller asks the server
   * again.
   */
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
 * How long to believe silence, or an answer that contradicts an earlier one, in milliseconds: a server in trouble may
 * seem not to speak an era.
 */
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

  /** `auto` asks the server; an era from the config is the only era and never changes. */
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

  /**
   * Notes that the server refused a version of this era. Returns true if the server must be asked again; false for a
   * configured era, and for an era not known to be spoken.
   */
  doubt(era: Era): boolean {
    const entry = this.#entries.get(era)
    if (this.#isPinned || entry?.known.speaks !== true) return false
    entry.until = 0
    this.#refused.add(era)
    return true
  }
}
