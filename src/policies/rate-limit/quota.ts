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

interface LineSettings {
  readonly queue: number
  readonly maxWait: Millis
}

export type QuotaSettings = WindowSettings & LineSettings

/**
 * A beat is one job of the pacer and releases one or more waiting calls. Shortest time between two beats, in
 * milliseconds: a bottleneck job takes a few milliseconds.
 */
const FASTEST_BEAT_MS = 20

/** How often the first waiting call checks whether released calls have been sent, in milliseconds. */
const LOOK_MS: Millis = 50

/** The quota granted by a server's operator: all queues for the server share a window, whatever their config. */
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

/** All grants of a server's operator. Overrides may have several grants for the server's tools at the same time. */
export class Grants implements Observable {
  readonly #server: string
  readonly #clock: Clock
  readonly #grants = new StatesBySettings<Grant>()

  constructor(server: string, clock: Clock) {
    this.#server = server
    this.#clock = clock
  }

  /**
   * Returns the quota for these settings, created on first use. A quota with a changed grant starts with the released
   * calls of all other grants. Reason: the config does not say which grant is replaced, and the server has seen every
   * call.
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
 * The queue for a server's grant: calls within the grant pass at once, others wait for their turn. Only the window
 * decides whether a call may go, so a pacing error cannot break the quota.
 */
export class Quota implements Observable {
  readonly server: string
  readonly settings: QuotaSettings
  readonly #clock: Clock
  readonly #window: SlidingWindow
  readonly #expiries: ExpiryQueue
  /** The waiting calls in order of arrival: each function releases its call. */
  readonly #line = new Set<(ticket: Ticket) => void>()
  readonly #paceMs: Millis
  readonly #perBeat: number
  /** Paces the releases of waiting calls; undefined while no call waits. */
  #pacer: Pacer | undefined
  /** Number of beats pending or running, and a signal for their end. */
  #beats = 0
  #ended = new Cancellation()
  /** Start of the last beat, and whether the beat still runs because it waits for the window. */
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
    // A hopeless wait would only take a place from other calls.
    const mostMs = Math.min(this.settings.maxWait, (call.deadline?.at ?? Infinity) - now)
    if (waitMs > mostMs) return Promise.resolve(tooLong(this, waitMs))
    return this.#wait(call, next)
  }

  /**
   * Runs a released call. The call may still wait for a slot or a connection, so the window counts it from its sending.
   */
  #letGo(call: Call, next: Service, ticket: Ticket): Promise<Outcome> {
    const onSent = () => ticket.sent(this.#clock.now())
    const passed = new Promise<Outcome>((settle) => settle(next(derive(call, { onSent }))))
    return passed.finally(() => ticket.end())
  }

  snapshot() {
    const { calls, per, queue } = this.settings
    return { calls, perMs: per, left: this.#window.room(this.#clock.now()), queue, waiting: this.waiting }
  }

  /** Returns the shortest possible wait for a further call, in milliseconds. */
  #leastWait(now: Millis): Millis {
    const ahead = this.#line.size
    const beats = Math.floor(ahead / this.#perBeat)
    const byWindow = this.#window.wait(now, ahead)
    return beats === 0 ? byWindow : Math.max(byWindow, this.#beatAfter(beats, now) - now)
  }

  /** Returns the earliest time of the beat that is `beats` places after the first pending or running beat. */
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
      // A pacer cannot cancel jobs, so a beat belongs to the first call in the queue at its time, not to a fixed call.
      for (; this.#beats < this.#line.size; this.#beats++) void this.#pacer.schedule(() => this.#serve(ended))
    })
  }

  /** Runs a beat: waits until the quota releases the first call, and the other calls of the same beat. */
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
        // A released call may never be sent; its place is then free.
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

function queueFull(quota: Quota, waitMs: Millis): Outcome {
  const { waiting, settings } = quota
  return reject(quota, `is used up (${waiting} of ${settings.queue} waiting)`, waitMs)
}

/** Rejects a call because its wait would exceed the deadline or the longest wait. */
function tooLong(quota: Quota, waitMs: Millis): Outcome {
  return reject(quota, `is used up for ${waitDuration(waitMs)}`, waitMs)
}

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
 * Allows at most `calls` in any span of `per` milliseconds at the server, with `minTime` between two releases: the
 * quota holds for any window of the server. Stores the send times of the last `calls` calls in a ring, 8 bytes each. A
 * released call takes a place too, even before the call is sent.
 */
export class SlidingWindow {
  readonly #settings: WindowSettings
  readonly #times: Float64Array
  #oldest = 0
  /** Time of the latest release or sending. */
  #last: Millis = -Infinity
  #sent = 0
  readonly #underWay = new Set<Ticket>()

  /** `others`: windows of the same server; their calls so far count here too, including calls not sent yet. */
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

  /** Calls released and not sent yet. */
  get underWay(): number {
    return this.#underWay.size
  }

  /** Returns the known send times of this window's own calls. */
  #starts(): Millis[] {
    const { length } = this.#times
    const count = Math.min(this.#sent, length)
    return Array.from({ length: count }, (_, n) => this.#times[(this.#oldest + length - count + n) % length]!)
  }

  /** Releases a call; undefined when the call has to wait. */
  take(now: Millis): Ticket | undefined {
    if (this.wait(now, 0) > 0) return undefined
    this.#last = now
    const ticket = new Ticket()
    ticket.countIn(this)
    return ticket
  }

  /** Counts a call released here or elsewhere and not sent yet. */
  begin(ticket: Ticket): void {
    this.#underWay.add(ticket)
  }

  sent(now: Millis): void {
    this.#times[this.#oldest] = now
    this.#oldest = (this.#oldest + 1) % this.#times.length
    this.#last = now
    this.#sent++
  }

  /** Ends a call: sent, or never to be sent. */
  end(ticket: Ticket): void {
    this.#underWay.delete(ticket)
  }

  /** Returns the shortest wait of a call with `inLine` calls ahead, in milliseconds. */
  wait(now: Millis, inLine: number): Millis {
    const { calls, per, minTime } = this.#settings
    const ahead = inLine + this.#underWay.size
    const rounds = Math.floor(ahead / calls)
    const before = this.#times[(this.#oldest + ahead) % calls]!
    // Calls ahead start now at the earliest, even when their quota was free before. Each further round adds `per` to
    // that.
    const byQuota = rounds === 0 ? before + per - now : Math.max(before + per - now, 0) + rounds * per
    const bySpacing = Math.max(this.#last + minTime - now, 0) + inLine * minTime
    return Math.max(0, byQuota, bySpacing)
  }

  /** Returns how many calls may go now. */
  room(now: Millis): number {
    const { calls, per } = this.#settings
    let free = 0
    while (free < calls && this.#times[(this.#oldest + free) % calls]! + per <= now) free++
    return Math.max(0, free - this.#underWay.size)
  }
}

/** A released call until sent or over, counted in its window and in any window that replaced it. */
export class Ticket {
  readonly #windows: SlidingWindow[] = []

  countIn(window: SlidingWindow): void {
    this.#windows.push(window)
    window.begin(this)
  }

  /** Called at each sending: a reopened session sends the call again. */
  sent(now: Millis): void {
    for (const window of this.#windows) window.sent(now)
    this.end()
  }

  end(): void {
    for (const window of this.#windows) window.end(this)
  }
}
