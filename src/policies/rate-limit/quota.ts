import type { Call, Outcome, Service } from '../../mesh/call.ts'
import type { Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { ExpiryQueue } from '../../mesh/expiry.ts'
import { givenUp } from '../state/given-up.ts'
import { Pacer } from './pacer.ts'
import { queueFull, tooLong, waitedInVain } from './quota-ends.ts'
import { SlidingWindow, type WindowSettings } from './window.ts'

export interface QuotaSettings extends WindowSettings {
  /** How many calls wait at most. */
  readonly queue: number
  /** How long a call waits at most, in milliseconds. */
  readonly maxWait: Millis
}

/** Turns come no faster than that, in milliseconds: a job of bottleneck takes a few. One turn serves several then. */
const FASTEST_TURN_MS = 20

/**
 * What a server's operator has granted: calls within it pass at once, the others wait in line for their turn.
 * The window alone decides whether a call may go, so that no mishap in the pacing can break the quota.
 */
export class Quota {
  readonly server: string
  readonly settings: QuotaSettings
  readonly #clock: Clock
  readonly #window: SlidingWindow
  readonly #expiries: ExpiryQueue
  /** Those who wait, in the order in which they came: each lets its call go. */
  readonly #line = new Set<() => void>()
  readonly #paceMs: Millis
  readonly #perTurn: number
  #pacer: Pacer | undefined

  constructor(server: string, settings: QuotaSettings, clock: Clock) {
    const { calls, per, minTime, maxWait } = settings
    const intervalMs = Math.max(per / calls, minTime)
    this.server = server
    this.settings = settings
    this.#clock = clock
    this.#window = new SlidingWindow(settings)
    this.#expiries = new ExpiryQueue(clock, maxWait)
    this.#perTurn = minTime > 0 ? 1 : Math.max(1, Math.round(FASTEST_TURN_MS / intervalMs))
    this.#paceMs = this.#perTurn * intervalMs
  }

  get waiting(): number {
    return this.#line.size
  }

  run(call: Call, next: Service): Promise<Outcome> {
    const now = this.#clock.now()
    if (this.#line.size === 0 && this.#window.take(now) === 0) return next(call)
    if (call.signal.aborted) return Promise.resolve(givenUp(call, CANCELLED))
    const waitMs = this.#leastWait(now)
    if (this.#line.size >= this.settings.queue) return Promise.resolve(queueFull(this, waitMs))
    // Waiting in vain would only take a place from others.
    const mostMs = Math.min(this.settings.maxWait, (call.deadline?.at ?? Infinity) - now)
    if (waitMs > mostMs) return Promise.resolve(tooLong(this, waitMs))
    return this.#wait(call, next)
  }

  snapshot() {
    const { calls, per, queue } = this.settings
    return { calls, perMs: per, left: this.#window.left(this.#clock.now()), queue, waiting: this.waiting }
  }

  /** What one more call would have to wait at least, in milliseconds. */
  #leastWait(now: Millis): Millis {
    const ahead = this.#line.size
    return Math.max(this.#window.wait(now, ahead), Math.floor(ahead / this.#perTurn) * this.#paceMs)
  }

  #wait(call: Call, next: Service): Promise<Outcome> {
    const since = this.#clock.now()
    return new Promise((resolve) => {
      const leave = () => {
        this.#line.delete(go)
        this.#expiries.remove(expiry)
        call.signal.removeEventListener('abort', aborted)
        if (this.#line.size === 0) this.#rest()
      }
      const end = (outcome: Outcome) => {
        leave()
        resolve(outcome)
      }
      const aborted = () => end(givenUp(call, CANCELLED))
      const go = () => {
        leave()
        call.record.waitedMs += this.#clock.now() - since
        resolve(new Promise((settle) => settle(next(call))))
      }
      const expiry = this.#expiries.add(() => end(waitedInVain(this, this.#leastWait(this.#clock.now()))))
      call.signal.addEventListener('abort', aborted)
      this.#line.add(go)
      this.#pacer ??= new Pacer(this.#paceMs, (ended) => this.#serve(ended))
      this.#pacer.provide(this.#line.size)
    })
  }

  /** One turn: waits until the quota lets the first in line go, and with it those who share the turn. */
  async #serve(ended: Signal): Promise<void> {
    for (let served = 0; served < this.#perTurn && !ended.aborted;) {
      const waitMs = this.#window.take(this.#clock.now())
      if (waitMs === 0) {
        for (const go of this.#line) {
          go()
          break
        }
        served++
      } else if (served > 0) return
      else await this.#clock.sleep(Math.ceil(waitMs), ended).catch(() => undefined)
    }
  }

  #rest(): void {
    this.#pacer?.end()
    this.#pacer = undefined
  }
}

const CANCELLED = 'cancelled while it waited for its turn in the quota'
