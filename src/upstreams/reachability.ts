import { Cancellation, type Signal } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { formatDuration } from '../units/duration.ts'
import { orAborted } from './failure.ts'

/** An endpoint that may be probed; see `Upstream.probe`. */
interface Probed {
  probe?(signal: Signal): Promise<boolean>
}

export interface ReachabilityOptions {
  readonly replicas: readonly Probed[]
  readonly clock: Clock
  /** Called when a lost replica is reachable again; not when only faults made it unreachable. */
  readonly onBack: (replica: number) => void
}

/** Limit of a probe, in milliseconds. */
const PROBE_MS: Millis = 1_000

/** First pause between probes, in milliseconds; each further pause is 1.5 times as long, up to `LONGEST_PAUSE_MS`. */
const FIRST_PAUSE_MS: Millis = 50
const LONGEST_PAUSE_MS: Millis = 500

/** After an outage of this length, in milliseconds, probes come every 5 s. */
const LONG_OUTAGE_MS: Millis = 60_000
const NIGHT_PAUSE_MS: Millis = 5_000

/** How long after a successful probe an unanswered call starts no new probe, in milliseconds. */
const RESPITE_MS: Millis = 1_000

/** An endpoint that is being probed. */
interface Watch {
  readonly since: Millis
  lost: boolean
  /** Whether a probe, or a call without a fault, has shown that the endpoint is lost. */
  isProven: boolean
  failed: number
  cancel: Cancel
  /** Called after a successful probe, or when probing ends. */
  readonly waiting: ((isThere: boolean) => void)[]
}

/**
 * Probes an unreachable endpoint until it answers, so no call has to test the endpoint. This is active health checking
 * as in Envoy, but a working endpoint is never probed.
 */
export class Reachability {
  readonly #options: ReachabilityOptions
  readonly #watched = new Map<number, Watch>()
  /** When each replica became reachable again, on the monotonic clock. */
  readonly #backAt: Millis[]
  /** When a probe last found each replica, on the monotonic clock. */
  readonly #foundAt: Millis[]
  #stopped = false

  constructor(options: ReachabilityOptions) {
    this.#options = options
    this.#backAt = options.replicas.map(() => -Infinity)
    this.#foundAt = options.replicas.map(() => -Infinity)
  }

  /** Returns when a lost replica last became reachable again; negative infinity: never. */
  backAt(replica: number): Millis {
    return this.#backAt[replica] ?? -Infinity
  }

  isLost(replica: number): boolean {
    return this.#watched.get(replica)?.lost === true
  }

  /**
   * Notes a call without a connection (`lost`) or without an answer: a probe then decides. `byFault`: a fault ended the
   * call, so its endpoint may be healthy.
   */
  suspect(replica: number, lost: boolean, byFault = false): void {
    const found = this.#watched.get(replica)
    const isFine = this.#options.clock.now() - (this.#foundAt[replica] ?? -Infinity) < RESPITE_MS
    const watch = found ?? (lost || !isFine ? this.#watch(replica, lost) : undefined)
    if (watch === undefined) return
    watch.lost ||= lost
    watch.isProven ||= lost && !byFault
  }

  /** Resolves to true once a probe finds the replica, to false when the watch ends. Undefined without probes. */
  reached(replica: number): Promise<boolean> | undefined {
    const watch = this.#watched.get(replica) ?? this.#watch(replica, false)
    return watch && new Promise((resolve) => watch.waiting.push(resolve))
  }

  /** Ends the watch of a replica after an answer. Some servers answer no probe outside a session. */
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
    // Only a lost replica can have become reachable again.
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
