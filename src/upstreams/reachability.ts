import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { formatDuration } from '../units/duration.ts'
import { orAborted } from './failure.ts'

/** An endpoint, as far as it can be probed; see `Upstream.probe`. */
interface Probed {
  probe?(signal: Signal): Promise<boolean>
}

export interface ReachabilityOptions {
  readonly replicas: readonly Probed[]
  readonly clock: Clock
  /** Told when a replica that could not be reached can be again; not where only faults said that it could not. */
  readonly onBack: (replica: number) => void
}

/** How long an endpoint may take to show that it is there, in milliseconds. */
const PROBE_MS: Millis = 1_000

/** The first pause between two probes, in milliseconds; each further one is half as long again, up to `LONGEST_PAUSE_MS`. */
const FIRST_PAUSE_MS: Millis = 50
const LONGEST_PAUSE_MS: Millis = 500

/** A server that has been down for so long is down for the night, in milliseconds, and is probed every 5 s. */
const LONG_OUTAGE_MS: Millis = 60_000
const NIGHT_PAUSE_MS: Millis = 5_000

/** How long an endpoint that a probe has found is not in doubt again, in milliseconds, unless somebody waits to hear of it. */
const RESPITE_MS: Millis = 1_000

/** One endpoint in doubt. */
interface Watch {
  readonly since: Millis
  /** Whether it is known that the endpoint could not be reached. */
  lost: boolean
  /** Whether a probe, or a call that no fault kept from the endpoint, has found that. */
  isProven: boolean
  /** Probes that have failed. */
  failed: number
  cancel: Cancel
  /** Told once a probe succeeds, or nobody probes any more. */
  readonly waiting: ((isThere: boolean) => void)[]
}

/**
 * Watches endpoints that calls could not reach until they can be reached again, so that no call has to find out. Active
 * health checking in the sense of Envoy, but only while there is a doubt: an endpoint that works is never probed.
 */
export class Reachability {
  readonly #options: ReachabilityOptions
  readonly #watched = new Map<number, Watch>()
  /** When each replica was found to be reachable again, on the monotonic clock. */
  readonly #backAt: Millis[]
  /** When each replica was last found by a probe, on the monotonic clock. */
  readonly #foundAt: Millis[]
  #stopped = false

  constructor(options: ReachabilityOptions) {
    this.#options = options
    this.#backAt = options.replicas.map(() => -Infinity)
    this.#foundAt = options.replicas.map(() => -Infinity)
  }

  /** When a replica that could not be reached was last found to be reachable again; negative infinity: never. */
  backAt(replica: number): Millis {
    return this.#backAt[replica] ?? -Infinity
  }

  /** Whether a replica is known to be out of reach now. */
  isLost(replica: number): boolean {
    return this.#watched.get(replica)?.lost === true
  }

  /**
   * A call could not reach a replica (`lost`), or got no answer of it: then a probe decides whether it can be reached.
   * `byFault`: a fault ended the call. The endpoint behind such a fault may take requests all the time.
   */
  suspect(replica: number, lost: boolean, byFault = false): void {
    const found = this.#watched.get(replica)
    const isFine = this.#options.clock.now() - (this.#foundAt[replica] ?? -Infinity) < RESPITE_MS
    const watch = found ?? (lost || !isFine ? this.#watch(replica, lost) : undefined)
    if (watch === undefined) return
    watch.lost ||= lost
    watch.isProven ||= lost && !byFault
  }

  /**
   * Resolves to true when a probe that begins after this call, or that goes on now, finds that the replica takes requests; to false when
   * nobody watches it any more. Undefined for a replica that cannot be probed.
   */
  reached(replica: number): Promise<boolean> | undefined {
    const watch = this.#watched.get(replica) ?? this.#watch(replica, false)
    return watch && new Promise((resolve) => watch.waiting.push(resolve))
  }

  /** Ends the watch of a replica that has answered the gateway. Some servers answer no probe outside a session. */
  found(replica: number): void {
    const watch = this.#watched.get(replica)
    if (watch !== undefined) this.#isBack(replica, watch)
  }

  stop(): void {
    this.#stopped = true
    for (const { cancel, waiting } of this.#watched.values()) {
      cancel()
      for (const tell of waiting) tell(false)
    }
    this.#watched.clear()
  }

  #watch(replica: number, lost: boolean): Watch | undefined {
    if (this.#stopped || this.#options.replicas[replica]?.probe === undefined) return undefined
    const since = this.#options.clock.now()
    const watch: Watch = { since, lost, isProven: false, failed: 0, cancel: () => undefined, waiting: [] }
    this.#watched.set(replica, watch)
    this.#probeIn(lost ? this.#pauseOf(watch) : 0, replica, watch)
    return watch
  }

  #probeIn(ms: Millis, replica: number, watch: Watch): void {
    watch.cancel = this.#options.clock.after(ms, () => void this.#probe(replica, watch))
  }

  async #probe(replica: number, watch: Watch): Promise<void> {
    const isThere = await this.#isThere(replica)
    if (this.#stopped || this.#watched.get(replica) !== watch) return
    if (!isThere) {
      watch.lost = true
      watch.isProven = true
      watch.failed++
      this.#probeIn(this.#pauseOf(watch), replica, watch)
      return
    }
    this.#foundAt[replica] = this.#options.clock.now()
    this.#isBack(replica, watch)
    if (watch.isProven) this.#options.onBack(replica)
  }

  #isBack(replica: number, watch: Watch): void {
    watch.cancel()
    this.#watched.delete(replica)
    // One that was there all the time has not come back.
    if (watch.lost) this.#backAt[replica] = this.#options.clock.now()
    for (const tell of watch.waiting) tell(true)
  }

  #isThere(replica: number): Promise<boolean> {
    const limit = new Cancellation()
    const probing = this.#options.replicas[replica]?.probe?.(limit) ?? Promise.resolve(false)
    const cancel = this.#options.clock.after(PROBE_MS, () => limit.abort(tookTooLong))
    return orAborted(probing, limit).catch(never).finally(cancel)
  }

  #pauseOf({ since, failed }: Watch): Millis {
    if (this.#options.clock.now() - since >= LONG_OUTAGE_MS) return NIGHT_PAUSE_MS
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 1.5 ** failed)
  }
}

const tookTooLong = gatewayError('attempt_timeout', `no sign of life within ${formatDuration(PROBE_MS)}`)

const never = (): boolean => false
