import type Bottleneck from 'bottleneck'
import { type Call, derive, type Outcome, type Service } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { ExpiryQueue } from '../../mesh/expiry.ts'
import type { Observable } from '../../mesh/policy.ts'
import { formatDuration, waitDuration } from '../../units/duration.ts'
import { givenUp } from '../state/given-up.ts'
import { StatesBySettings } from '../state/states-by-settings.ts'
import { bottleneckOn } from './clocked-bottleneck.ts'

/** How calls wait for what a server grants. */
interface LineSettings {
  /** How many calls wait at most. */
  readonly queue: number
  /** How long a call waits at most, in milliseconds. */
  readonly maxWait: Millis
}

export type QuotaSettings = WindowSettings & LineSettings

/** Turns come no faster than that, in milliseconds: a job of bottleneck takes a few. One turn serves several then. */
const FASTEST_TURN_MS = 20

/** How often the first in line looks whether calls that were let go have reached the server, in milliseconds. */
const LOOK_MS: Millis = 50

/** What a server's operator has granted: all lines before it draw on one window, whatever config they are of. */
class Grant implements Observable {
  readonly window: SlidingWindow
  readonly lines = new StatesBySettings<Quota>()

  constructor(granted: WindowSettings, starts: readonly Millis[]) {
    this.window = new SlidingWindow(granted, starts)
  }

  snapshot(): unknown[] {
    return this.lines.snapshot()
  }
}

/** All that the operator of one server has granted. Overrides may have several grants for its tools at the same time. */
export class Grants implements Observable {
  readonly #server: string
  readonly #clock: Clock
  readonly #grants = new StatesBySettings<Grant>()

  constructor(server: string, clock: Clock) {
    this.#server = server
    this.#clock = clock
  }

  /**
   * The quota under these settings, made at the first asking. One that grants something else than before knows of all calls that any of
   * them has let go: which of them it takes the place of, nobody says, and the server has seen them all.
   */
  quota({ queue, maxWait, ...granted }: QuotaSettings): Quota {
    const starts = () => this.#grants.states().flatMap(({ window }) => window.starts())
    const { window, lines } = this.#grants.get(granted, () => new Grant(granted, starts()))
    const settings = { ...granted, queue, maxWait }
    return lines.get({ queue, maxWait }, () => new Quota(this.#server, settings, this.#clock, window))
  }

  snapshot(): unknown[] {
    return this.#grants.snapshot()
  }
}

/**
 * The line before what a server's operator has granted: calls within it pass at once, the others wait for their turn.
 * The window alone decides whether a call may go, so that no mishap in the pacing can break the quota.
 */
export class Quota implements Observable {
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

  constructor(server: string, settings: QuotaSettings, clock: Clock, window: SlidingWindow) {
    const { calls, per, minTime, maxWait } = settings
    const intervalMs = Math.max(per / calls, minTime)
    this.server = server
    this.settings = settings
    this.#clock = clock
    this.#window = window
    this.#expiries = new ExpiryQueue(clock, maxWait)
    this.#perTurn = minTime > 0 ? 1 : Math.max(1, Math.round(FASTEST_TURN_MS / intervalMs))
    this.#paceMs = this.#perTurn * intervalMs
  }

  get waiting(): number {
    return this.#line.size
  }

  run(call: Call, next: Service): Promise<Outcome> {
    const now = this.#clock.now()
    if (this.#line.size === 0 && this.#window.take(now) === 0) return this.#letGo(call, next)
    if (call.signal.aborted) return Promise.resolve(givenUp(call, CANCELLED))
    const waitMs = this.#leastWait(now)
    if (this.#line.size >= this.settings.queue) return Promise.resolve(queueFull(this, waitMs))
    // Waiting in vain would only take a place from others.
    const mostMs = Math.min(this.settings.maxWait, (call.deadline?.at ?? Infinity) - now)
    if (waitMs > mostMs) return Promise.resolve(tooLong(this, waitMs))
    return this.#wait(call, next)
  }

  /** It may wait for other things, such as a slot or a connection: in its window it stands from when it reaches the server. */
  #letGo(call: Call, next: Service): Promise<Outcome> {
    let isUnderWay = true
    const arrived = () => {
      if (isUnderWay) this.#window.left()
      isUnderWay = false
    }
    const onSent = () => {
      this.#window.sent(this.#clock.now())
      arrived()
    }
    return new Promise<Outcome>((settle) => settle(next(derive(call, { onSent })))).finally(arrived)
  }

  snapshot() {
    const { calls, per, queue } = this.settings
    return { calls, perMs: per, left: this.#window.room(this.#clock.now()), queue, waiting: this.waiting }
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
        resolve(this.#letGo(call, next))
      }
      const expiry = this.#expiries.add(() => end(waitedInVain(this, this.#leastWait(this.#clock.now()))))
      call.signal.addEventListener('abort', aborted)
      this.#line.add(go)
      this.#pacer ??= new Pacer(this.#clock, this.#paceMs, (ended) => this.#serve(ended))
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
      else {
        // One that is under way may never reach the server, and its place is free then.
        const ms = this.#window.underWay > 0 ? Math.min(waitMs, LOOK_MS) : waitMs
        await this.#clock.sleep(Math.ceil(ms), ended).catch(() => undefined)
      }
    }
  }

  #rest(): void {
    this.#pacer?.end()
    this.#pacer = undefined
  }
}

const CANCELLED = 'cancelled while it waited for its turn in the quota'

/** Rejects a call that found no place to wait. */
function queueFull(quota: Quota, waitMs: Millis): Outcome {
  const { waiting, settings } = quota
  return reject(quota, `is used up (${waiting} of ${settings.queue} waiting)`, waitMs)
}

/** Rejects a call that could not go before its deadline or the longest wait. */
function tooLong(quota: Quota, waitMs: Millis): Outcome {
  return reject(quota, `is used up for ${waitDuration(waitMs)}`, waitMs)
}

/** Rejects a call whose turn did not come. */
function waitedInVain(quota: Quota, waitMs: Millis): Outcome {
  return reject(quota, `is used up (waited ${formatDuration(quota.settings.maxWait)})`, waitMs)
}

function reject({ server, settings }: Quota, what: string, waitMs: Millis): Outcome {
  const quota = `quota of ${settings.calls} calls in ${formatDuration(settings.per)} for ${server}`
  const error = gatewayError('rate_limited', `${quota} ${what}`, {
    retryAfterMs: Math.max(1, Math.ceil(waitMs)),
  })
  return { kind: 'rejected', error, by: 'rateLimit' }
}

interface WindowSettings {
  readonly calls: number
  readonly per: Millis
  readonly minTime: Millis
}

/**
 * Never more than `calls` in any span of `per` milliseconds, and `minTime` between two of them: whatever windows
 * the other side counts in, the quota is kept. The times of the last `calls` calls in a ring, 8 bytes each. A call that was let
 * go and has not reached the server takes a place as well, from whenever it will.
 */
export class SlidingWindow {
  readonly #settings: WindowSettings
  readonly #times: Float64Array
  /** Where the oldest time stands. */
  #oldest = 0
  #last: Millis = -Infinity
  #sent = 0
  #underWay = 0

  /** `starts`: when calls went before, in any order. */
  constructor(settings: WindowSettings, starts: readonly Millis[] = []) {
    this.#settings = settings
    this.#times = new Float64Array(settings.calls).fill(-Infinity)
    const latest = Float64Array.from(starts).sort().slice(-settings.calls)
    this.#times.set(latest)
    this.#oldest = latest.length % settings.calls
    this.#last = latest.at(-1) ?? -Infinity
  }

  /** Calls that were let go and have not reached the server. */
  get underWay(): number {
    return this.#underWay
  }

  /** When the calls reached the server that it has let go itself, as far as it knows. */
  starts(): Millis[] {
    const { length } = this.#times
    const count = Math.min(this.#sent, length)
    return Array.from({ length: count }, (_, n) => this.#times[(this.#oldest + length - count + n) % length]!)
  }

  /** Lets one call go, until `left`: 0. Or tells how many milliseconds have to pass before that. */
  take(now: Millis): Millis {
    const waitMs = this.wait(now, 0)
    if (waitMs === 0) this.#underWay++
    return waitMs
  }

  /** A call reaches the server. */
  sent(now: Millis): void {
    this.#times[this.#oldest] = now
    this.#oldest = (this.#oldest + 1) % this.#times.length
    this.#last = now
    this.#sent++
  }

  /** One that was let go is under way no more: it has reached the server, or never will. */
  left(): void {
    this.#underWay--
  }

  /** The least that a call has to wait with `inLine` others before it, in milliseconds. */
  wait(now: Millis, inLine: number): Millis {
    const { calls, per, minTime } = this.#settings
    const ahead = inLine + this.#underWay
    const rounds = Math.floor(ahead / calls)
    const before = this.#times[(this.#oldest + ahead) % calls]!
    // Those ahead that have no wait by the quota still go now at the earliest, which a further round counts from.
    const byQuota = rounds === 0 ? before + per - now : Math.max(before + per - now, 0) + rounds * per
    const bySpacing = Math.max(this.#last + minTime - now, 0) + ahead * minTime
    return Math.max(0, byQuota, bySpacing)
  }

  /** How many calls may go now. */
  room(now: Millis): number {
    const { calls, per } = this.#settings
    let free = 0
    while (free < calls && this.#times[(this.#oldest + free) % calls]! + per <= now) free++
    return Math.max(0, free - this.#underWay)
  }
}

/**
 * Gives out turns, one at a time and `paceMs` apart. bottleneck does the pacing, and nothing else: its jobs cannot
 * be cancelled, so a turn belongs to no call, but to whoever is first in line when it comes.
 */
class Pacer {
  readonly #limiter: Bottleneck
  readonly #ended = new Cancellation()
  readonly #turn: () => Promise<void>
  #turns = 0

  /** `serve` uses one turn; the next one comes when its promise has resolved. It is told when the pacer ends. */
  constructor(clock: Clock, paceMs: Millis, serve: (ended: Signal) => Promise<void>) {
    this.#limiter = new (bottleneckOn(clock))({ maxConcurrent: 1, minTime: paceMs, rejectOnDrop: false })
    this.#turn = () => serve(this.#ended).finally(() => this.#turns--)
  }

  /** Sees to it that `wanted` turns are to come; turns that were meant for somebody who has left count too. */
  provide(wanted: number): void {
    while (this.#turns < wanted) {
      this.#turns++
      void this.#limiter.schedule(this.#turn)
    }
  }

  /** Gives no more turns, and lets go of all timers. */
  end(): void {
    this.#ended.abort(undefined)
    void this.#limiter.stop({ dropWaitingJobs: true })
  }
}
