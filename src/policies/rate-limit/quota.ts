import { type Call, derive, type Outcome, type Service } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { ExpiryQueue } from '../../mesh/time-limit.ts'
import type { Observable } from '../../mesh/policy.ts'
import { formatDuration, waitDuration } from '../../units/duration.ts'
import { givenUp } from '../state/given-up.ts'
import { StatesBySettings } from '../state/states-by-settings.ts'
import { type Pacer, pacerOn } from './pacer.ts'
import { numbered } from '../../units/numbered.ts'

/** How calls wait for what a server grants. */
interface LineSettings {
  /** How many calls wait at most. */
  readonly queue: number
  /** How long a call waits at most, in milliseconds. */
  readonly maxWait: Millis
}

export type QuotaSettings = WindowSettings & LineSettings

/** Beats come no faster than that, in milliseconds: a job of bottleneck takes a few. One beat serves several then. */
const FASTEST_BEAT_MS = 20

/** How often the first in line looks whether calls that were let go have been sent, in milliseconds. */
const LOOK_MS: Millis = 50

/** The quota that a server's operator has granted: all lines before it draw on one window, whatever config the lines are of. */
class Grant implements Observable {
  readonly window: SlidingWindow
  readonly lines = new StatesBySettings<Quota>()

  constructor(granted: WindowSettings, others: readonly SlidingWindow[]) {
    this.window = new SlidingWindow(granted, others)
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
    const others = () => this.#grants.states().map(({ window }) => window)
    const { window, lines } = this.#grants.get(granted, () => new Grant(granted, others()))
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
  /** The calls that wait, in the order in which they came: each function lets its call go. */
  readonly #line = new Set<(ticket: Ticket) => void>()
  readonly #paceMs: Millis
  readonly #perBeat: number
  /** Undefined while nobody waits. */
  #pacer: Pacer | undefined
  /** How many beats are to come or go on, and a signal for their end. */
  #beats = 0
  #ended = new Cancellation()
  /** When the last beat began, and whether it goes on: the first in line waits for the window in it. */
  #beatSince: Millis = -Infinity
  #isInBeat = false

  constructor(server: string, settings: QuotaSettings, clock: Clock, window: SlidingWindow) {
    const { calls, per, minTime, maxWait } = settings
    const intervalMs = Math.max(per / calls, minTime)
    this.server = server
    this.settings = settings
    this.#clock = clock
    this.#window = window
    this.#expiries = new ExpiryQueue(clock, maxWait)
    this.#perBeat = minTime > 0 ? 1 : Math.max(1, Math.round(FASTEST_BEAT_MS / intervalMs))
    this.#paceMs = this.#perBeat * intervalMs
  }

  get waiting(): number {
    return this.#line.size
  }

  run(call: Call, next: Service): Promise<Outcome> {
    const now = this.#clock.now()
    const ticket = this.#line.size === 0 ? this.#window.take(now) : undefined
    if (ticket !== undefined) return this.#letGo(call, next, ticket)
    if (call.signal.aborted) return Promise.resolve(givenUp(call, CANCELLED))
    const waitMs = this.#leastWait(now)
    if (this.#line.size >= this.settings.queue) return Promise.resolve(queueFull(this, waitMs))
    // Waiting in vain would only take a place from others.
    const mostMs = Math.min(this.settings.maxWait, (call.deadline?.at ?? Infinity) - now)
    if (waitMs > mostMs) return Promise.resolve(tooLong(this, waitMs))
    return this.#wait(call, next)
  }

  /** It may wait for other things, such as a slot or a connection: in the window it stands from when it is sent. */
  #letGo(call: Call, next: Service, ticket: Ticket): Promise<Outcome> {
    const onSent = () => ticket.sent(this.#clock.now())
    const passed = new Promise<Outcome>((settle) => settle(next(derive(call, { onSent }))))
    return passed.finally(() => ticket.end())
  }

  snapshot() {
    const { calls, per, queue } = this.settings
    return { calls, perMs: per, left: this.#window.room(this.#clock.now()), queue, waiting: this.waiting }
  }

  /** Returns how long one more call would have to wait at least, in milliseconds. */
  #leastWait(now: Millis): Millis {
    const ahead = this.#line.size
    const beats = Math.floor(ahead / this.#perBeat)
    const byWindow = this.#window.wait(now, ahead)
    return beats === 0 ? byWindow : Math.max(byWindow, this.#beatAfter(beats, now) - now)
  }

  /** When that beat comes at the earliest after the first one that is to come or goes on: that waits for the window, and those after it keep apart. */
  #beatAfter(beats: number, now: Millis): Millis {
    const paceMs = this.#paceMs
    const first = this.#isInBeat ? this.#beatSince : Math.max(now, this.#beatSince + paceMs)
    const served = Math.max(first, now + this.#window.wait(now, 0))
    return Math.max(served, first + paceMs) + (beats - 1) * paceMs
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
      const go = (ticket: Ticket) => {
        leave()
        call.record.waitedMs += this.#clock.now() - since
        resolve(this.#letGo(call, next, ticket))
      }
      const expiry = this.#expiries.add(() => end(waitedInVain(this, this.#leastWait(this.#clock.now()))))
      call.signal.addEventListener('abort', aborted)
      this.#line.add(go)
      this.#pacer ??= pacerOn(this.#clock, this.#paceMs)
      const ended = this.#ended
      // A pacer takes no job back, so a beat belongs to no call, but to whoever is first in line then.
      for (; this.#beats < this.#line.size; this.#beats++) void this.#pacer.schedule(() => this.#serve(ended))
    })
  }

  /** One beat: waits until the quota lets the first in line go, and with it those who share the beat. */
  async #serve(ended: Signal): Promise<void> {
    if (ended.aborted) return
    this.#beatSince = this.#clock.now()
    this.#isInBeat = true
    await this.#serveSome(ended)
    if (ended.aborted) return
    this.#isInBeat = false
    this.#beats--
  }

  async #serveSome(ended: Signal): Promise<void> {
    for (let served = 0; served < this.#perBeat && !ended.aborted;) {
      const [go] = this.#line
      if (go === undefined) return
      const now = this.#clock.now()
      const ticket = this.#window.take(now)
      if (ticket !== undefined) {
        go(ticket)
        served++
      } else if (served > 0) return
      else {
        const waitMs = this.#window.wait(now, 0)
        // A call that was let go may never be sent, and its place is free then.
        const ms = this.#window.underWay > 0 ? Math.min(waitMs, LOOK_MS) : waitMs
        await this.#clock.sleep(Math.ceil(ms), ended).catch(() => undefined)
      }
    }
  }

  #rest(): void {
    void this.#pacer?.stop()
    this.#pacer = undefined
    this.#ended.abort(undefined)
    this.#ended = new Cancellation()
    this.#beats = 0
    this.#beatSince = -Infinity
    this.#isInBeat = false
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
  const quota = `quota of ${numbered(settings.calls, 'call')} in ${formatDuration(settings.per)} for ${server}`
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
 * Never more than `calls` in any span of `per` milliseconds at the server, and `minTime` between two that are let go:
 * whatever windows the server counts in, the quota is kept. The times at which the last `calls` calls were sent in a ring, 8 bytes
 * each. A call that was let go and is not sent yet takes a place as well, from whenever it will be.
 */
export class SlidingWindow {
  readonly #settings: WindowSettings
  readonly #times: Float64Array
  /** Where the oldest time stands. */
  #oldest = 0
  /** When a call was let go or sent last. */
  #last: Millis = -Infinity
  #sent = 0
  readonly #underWay = new Set<Ticket>()

  /** `others`: windows of the same server, whose calls until now are this one's, too, also those that are not sent yet. */
  constructor(settings: WindowSettings, others: readonly SlidingWindow[] = []) {
    this.#settings = settings
    this.#times = new Float64Array(settings.calls).fill(-Infinity)
    const starts = others.flatMap((other) => other.#starts())
    const latest = Float64Array.from(starts).sort().slice(-settings.calls)
    this.#times.set(latest)
    this.#oldest = latest.length % settings.calls
    this.#last = latest.at(-1) ?? -Infinity
    for (const other of others) for (const ticket of other.#underWay) ticket.countIn(this)
  }

  /** Calls that were let go and are not sent yet. */
  get underWay(): number {
    return this.#underWay.size
  }

  /** When the calls were sent that it has let go itself, as far as it knows. */
  #starts(): Millis[] {
    const { length } = this.#times
    const count = Math.min(this.#sent, length)
    return Array.from({ length: count }, (_, n) => this.#times[(this.#oldest + length - count + n) % length]!)
  }

  /** Lets one call go; undefined where it has to wait. */
  take(now: Millis): Ticket | undefined {
    if (this.wait(now, 0) > 0) return undefined
    this.#last = now
    const ticket = new Ticket()
    ticket.countIn(this)
    return ticket
  }

  /** A call that was let go, here or elsewhere, is not sent yet. */
  begin(ticket: Ticket): void {
    this.#underWay.add(ticket)
  }

  /** A call is sent. */
  sent(now: Millis): void {
    this.#times[this.#oldest] = now
    this.#oldest = (this.#oldest + 1) % this.#times.length
    this.#last = now
    this.#sent++
  }

  /** A call is sent, or never will be. */
  end(ticket: Ticket): void {
    this.#underWay.delete(ticket)
  }

  /** The least that a call has to wait with `inLine` others before it, in milliseconds. */
  wait(now: Millis, inLine: number): Millis {
    const { calls, per, minTime } = this.#settings
    const ahead = inLine + this.#underWay.size
    const rounds = Math.floor(ahead / calls)
    const before = this.#times[(this.#oldest + ahead) % calls]!
    // Calls ahead without a wait by the quota still go now at the earliest. A further round counts from there.
    const byQuota = rounds === 0 ? before + per - now : Math.max(before + per - now, 0) + rounds * per
    const bySpacing = Math.max(this.#last + minTime - now, 0) + inLine * minTime
    return Math.max(0, byQuota, bySpacing)
  }

  /** How many calls may go now. */
  room(now: Millis): number {
    const { calls, per } = this.#settings
    let free = 0
    while (free < calls && this.#times[(this.#oldest + free) % calls]! + per <= now) free++
    return Math.max(0, free - this.#underWay.size)
  }
}

/** A call that was let go, until it is sent or over: it counts in its window, and in those that have taken over from that. */
export class Ticket {
  readonly #windows: SlidingWindow[] = []

  countIn(window: SlidingWindow): void {
    this.#windows.push(window)
    window.begin(this)
  }

  /** Each time that it is sent: a session that is opened again has it sent once more. */
  sent(now: Millis): void {
    for (const window of this.#windows) window.sent(now)
    this.end()
  }

  end(): void {
    for (const window of this.#windows) window.end(this)
  }
}
