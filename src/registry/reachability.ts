import { Cancellation } from '../mesh/cancel.ts'
import type { Cancel, Clock, Millis } from '../mesh/clock.ts'
import { gatewayError } from '../mesh/errors.ts'
import { orAborted } from '../upstreams/failure.ts'
import type { Upstream } from '../upstreams/upstream.ts'

export interface ReachabilityOptions {
  readonly replicas: readonly Upstream[]
  readonly clock: Clock
  /** Told when a replica that could not be reached can be again. */
  readonly onBack: (replica: number) => void
}

/** How long an endpoint may take to show that it is there, in milliseconds. */
const PROBE_MS: Millis = 1_000

/**
 * Pauses between two probes by how long the outage has lasted, in milliseconds: a restart takes a second or two and is to
 * be noticed at once, and a server that is down for the night costs one connection in five seconds.
 */
const PAUSES: readonly (readonly [forMs: Millis, pauseMs: Millis])[] = [
  [3_000, 50],
  [15_000, 200],
  [60_000, 1_000],
]
const LONGEST_PAUSE_MS: Millis = 5_000

/** One endpoint in doubt. */
interface Watch {
  readonly since: Millis
  /** Whether it is known that the endpoint could not be reached. */
  lost: boolean
  cancel: Cancel
}

/**
 * Watches endpoints that calls could not reach until they can be reached again, so that nobody has to find out by a call,
 * or by the end of a pause that has been chosen without knowing. Active health checking in the sense of Envoy, but only
 * while there is a doubt: an endpoint that works is never probed.
 */
export class Reachability {
  readonly #options: ReachabilityOptions
  readonly #watched = new Map<number, Watch>()
  /** When each replica was found to be reachable again, on the monotonic clock. */
  readonly #backAt: Millis[]
  #stopped = false

  constructor(options: ReachabilityOptions) {
    this.#options = options
    this.#backAt = options.replicas.map(() => -Infinity)
  }

  /** When a replica that could not be reached was last found to be reachable again; negative infinity: never. */
  backAt(replica: number): Millis {
    return this.#backAt[replica] ?? -Infinity
  }

  /** A call could not reach a replica (`lost`), or got no answer of it: then a probe decides whether it can be reached. */
  suspect(replica: number, lost: boolean): void {
    if (this.#stopped || this.#options.replicas[replica]?.probe === undefined) return
    const watch = this.#watched.get(replica)
    if (watch !== undefined) {
      watch.lost ||= lost
      return
    }
    const began: Watch = { since: this.#options.clock.now(), lost, cancel: () => undefined }
    this.#watched.set(replica, began)
    this.#probeIn(lost ? this.#pauseOf(began) : 0, replica, began)
  }

  stop(): void {
    this.#stopped = true
    for (const { cancel } of this.#watched.values()) cancel()
    this.#watched.clear()
  }

  #probeIn(ms: Millis, replica: number, watch: Watch): void {
    watch.cancel = this.#options.clock.after(ms, () => void this.#probe(replica, watch))
  }

  async #probe(replica: number, watch: Watch): Promise<void> {
    const isThere = await this.#isThere(replica)
    if (this.#stopped) return
    if (isThere) {
      this.#watched.delete(replica)
      // One that was there all the time has not come back.
      if (!watch.lost) return
      this.#backAt[replica] = this.#options.clock.now()
      this.#options.onBack(replica)
      return
    }
    watch.lost = true
    this.#probeIn(this.#pauseOf(watch), replica, watch)
  }

  #isThere(replica: number): Promise<boolean> {
    const limit = new Cancellation()
    const probing = this.#options.replicas[replica]?.probe?.(limit) ?? Promise.resolve(false)
    const cancel = this.#options.clock.after(PROBE_MS, () => limit.abort(tookTooLong))
    return orAborted(probing, limit).catch(never).finally(cancel)
  }

  #pauseOf({ since }: Watch): Millis {
    const outMs = this.#options.clock.now() - since
    return PAUSES.find(([forMs]) => outMs < forMs)?.[1] ?? LONGEST_PAUSE_MS
  }
}

const tookTooLong = gatewayError('attempt_timeout', `no sign of life within ${PROBE_MS} ms`)

const never = (): boolean => false
