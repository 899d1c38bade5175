import type { Config } from '../../config/schema/schema.ts'
import { type Cancel, type Clock, LONGEST_TIMER_MS, type Millis } from '../../mesh/clock.ts'
import type { KeyedRandom } from '../../mesh/keyed-random.ts'
import type { Log } from '../../telemetry/log.ts'
import type { Metrics } from '../../telemetry/metrics.ts'
import { printable } from '../../telemetry/printable.ts'
import { type Incident, Incidents, type NoticeEvent, noticeEvents } from './incidents.ts'
import { type Announcement, isAnnouncement, keyOf, timeToDetect, timeToRecover } from './notices.ts'
import { Notifier, type NoticeOutcome } from './notifier.ts'
import { failureReasons, type Probe, type ProbeFailure, probeSteps } from './probe.ts'
import type { ProbeResult, ServerHealth } from './server-health.ts'

/** Most characters of a message kept in an incident. */
const LONGEST_MESSAGE = 300

/** Interval for writing `lastSeenAt` of an open incident, in milliseconds. */
const SEEN_MS: Millis = 30_000

/** Time a server must stay well to end an incident with a likely relapse, in milliseconds. */
const SETTLE_MS: Millis = 30_000

/** A new outage within this time after the server's last incident counts as a possible relapse, in milliseconds. */
const RELAPSE_MS: Millis = 300_000

export interface HealthWatchParts {
  readonly clock: Clock
  readonly random: KeyedRandom
  readonly log: Log
  readonly metrics: Metrics
  /** `gateway.stateDir`. */
  readonly stateDir: string | undefined
  /** `gateway.environment`. */
  readonly environment: string
}

/** A moment by both clocks, because the wall clock may be set. */
interface Moment {
  readonly wall: Millis
  readonly now: Millis
}

export interface ProbedServer {
  readonly name: string
  readonly health: Pick<ServerHealth, 'hasten'>
}

/** Turns findings of probes into incidents, and notifies webhooks. Shared by all generations. */
export class HealthWatch {
  readonly incidents: Incidents
  readonly #parts: HealthWatchParts
  readonly #notifier: Notifier
  readonly #escalations = new Map<string, Cancel>()
  /** Start of each incident begun in this process, on the monotonic clock. */
  readonly #startedNow = new Map<string, Millis>()
  /** Incidents that were due for escalation while the gateway did not know whether they continued. */
  readonly #due = new Set<string>()
  /** Incidents of an earlier process not yet confirmed by a failed probe. */
  readonly #unconfirmed = new Set<string>()
  /** Start of the current good period of each open incident's server. */
  readonly #wellSince = new Map<string, Moment>()
  #escalateMs: Millis | undefined

  constructor(parts: HealthWatchParts) {
    this.#parts = parts
    const { clock, random, log, stateDir } = parts
    const onProblem = (problem: string) => log.warn({ problem }, 'the file of incidents has a problem')
    this.incidents = new Incidents({ clock, stateDir, onProblem })
    this.#notifier = new Notifier({
      clock,
      random,
      mayTell: (webhook, receiver, notice) =>
        isAnnouncement(notice) ||
        notice.event !== 'closed' ||
        this.#wasTold(this.incidents.get(notice.incident.id), webhook, receiver),
      onOutcome: (outcome) => this.#noted(outcome),
    })
  }

  /** Loads incidents of an earlier process. Open incidents continue, with a gap for the downtime. Never rejects. */
  async load(): Promise<void> {
    await this.incidents.load()
    const to = this.#parts.clock.wall()
    for (const { id, gap, lastSeenAt, server } of this.incidents.open) {
      this.incidents.change(id, { gap: { from: gap?.from ?? lastSeenAt, to } })
      this.#unconfirmed.add(id)
      this.#parts.log.warn({ server, incident: id }, 'an incident from before the restart is still open')
    }
  }

  /** Applies a config: at boot, before the first probe, and after each reload. */
  follow({ health, mcpServers }: Pick<Config, 'health' | 'mcpServers'>): void {
    const { metrics } = this.#parts
    const isFirst = this.#escalateMs === undefined
    if (isFirst) this.#beginAtZero()
    this.#notifier.follow(health.webhooks)
    if (isFirst) for (const { id } of this.incidents.superseded) this.#end(id, 'unwatched')
    for (const { id, server } of this.incidents.open) {
      const entry = Object.hasOwn(mcpServers, server) ? mcpServers[server] : undefined
      if (entry === undefined || entry.disabled) this.#end(id, 'removed')
      else if (entry.health === false) this.#end(id, 'unwatched')
    }
    const isGone = ({ server = '' }: Readonly<Record<string, string | undefined>>) =>
      !Object.hasOwn(mcpServers, server)
    metrics.probeFailures.forget(isGone)
    metrics.incidents.forget(isGone)
    for (const server of Object.keys(mcpServers)) metrics.incidents.series({ server })
    if (health.escalateAfter !== this.#escalateMs) {
      this.#escalateMs = health.escalateAfter
      for (const incident of this.incidents.open) this.#escalateInTime(incident)
    }
    if (isFirst) this.#tellWhatIsLeft()
  }

  /** Starts all series at 0: Prometheus sees no increase in a series beginning at 1, so the first incident is lost. */
  #beginAtZero(): void {
    const { timeToDetect, timeToRecover } = this.#parts.metrics
    for (const reason of failureReasons) {
      timeToDetect.series({ reason })
      timeToRecover.series({ reason })
    }
  }

  probed(server: ProbedServer, probe: Probe, result: ProbeResult): void {
    const { metrics } = this.#parts
    const { name } = server
    for (const step of probeSteps) {
      const ms = probe.took[step]
      if (ms !== undefined) metrics.probeDuration.series({ step }).observe(ms / 1000)
    }
    if (result.failure !== undefined)
      metrics.probeFailures.inc({ server: name, reason: result.failure.reason })
    const open = this.incidents.openOf(name)
    if (result.state === 'well') {
      if (open !== undefined) this.#isWell(server, open)
    } else if (result.failure !== undefined) {
      if (open !== undefined) this.#goesOn(open, result.failure)
      else if (result.state === 'failing') this.#begin(name, result, result.failure)
    }
  }

  /**
   * Ends the incident at the first good probe. After a process exit or a recent incident the server must also stay well
   * for `SETTLE_MS`: otherwise each turn of a restart loop would be an incident.
   */
  #isWell({ health }: ProbedServer, incident: Incident): void {
    const { clock } = this.#parts
    const since = this.#wellSince.get(incident.id) ?? { wall: clock.wall(), now: clock.now() }
    const leftMs = this.#mayRelapse(incident) ? since.now + SETTLE_MS - clock.now() : 0
    if (leftMs <= 0) return this.#end(incident.id, 'recovered', since)
    this.#wellSince.set(incident.id, since)
    health.hasten(leftMs)
  }

  #mayRelapse({ id, server, reasons, startedAt }: Incident): boolean {
    const isRecent = (one: Incident) =>
      one.server === server && one.id !== id && (one.endedAt ?? 0) > startedAt - RELAPSE_MS
    return reasons.includes('process_exit') || this.incidents.list().some(isRecent)
  }

  /**
   * Tells a webhook of planned work. Nothing is kept: the news is lost if the process ends before the webhook takes
   * the news. Does nothing for an unknown webhook.
   */
  announce(webhook: string, news: Announcement): void {
    this.#notifier.send(webhook, news)
  }

  /** Aborts notices, and writes all incidents. The next process sends the remaining notices of incidents. */
  async close(): Promise<void> {
    for (const cancel of this.#escalations.values()) cancel()
    await this.#notifier.close()
    await this.incidents.close()
  }

  #begin(
    server: string,
    { since, sinceNow, notBeforeNow, lastWellAt }: ProbeResult,
    { reason, message }: ProbeFailure,
  ): void {
    const { clock, log, metrics } = this.#parts
    const detectedAt = clock.wall()
    const startedNow = sinceNow ?? clock.now()
    const incident = this.incidents.begin({
      server,
      reason,
      message: printable(message, LONGEST_MESSAGE),
      startedAt: since ?? detectedAt,
      detectedAt,
      detectedAfterMs: clock.now() - (notBeforeNow ?? startedNow),
      ...(lastWellAt !== undefined && { lastWellAt }),
    })
    this.#startedNow.set(incident.id, startedNow)
    metrics.incidents.inc({ server })
    metrics.timeToDetect.series({ reason }).observe(timeToDetect(incident) / 1000)
    log.warn(
      { server, incident: incident.id, reason, timeToDetectMs: timeToDetect(incident) },
      'incident opened',
    )
    this.#notify(incident, 'opened')
    this.#escalateInTime(incident)
  }

  #goesOn(incident: Incident, { reason, message }: ProbeFailure): void {
    const lastSeenAt = this.#parts.clock.wall()
    const isNew = !incident.reasons.includes(reason)
    const reasons = isNew ? [...incident.reasons, reason] : incident.reasons
    const isMinor = !isNew && Math.abs(lastSeenAt - incident.lastSeenAt) < SEEN_MS
    // Ignores messages for other reasons, such as from a server about to recover.
    const said = reason === incident.reason ? { message: printable(message, LONGEST_MESSAGE) } : {}
    const changes = { reasons, ...said }
    this.incidents.change(incident.id, isMinor ? changes : { ...changes, lastSeenAt }, isMinor)
    this.#wellSince.delete(incident.id)
    this.#unconfirmed.delete(incident.id)
    if (this.#due.delete(incident.id)) this.#escalate(incident.id)
  }

  /** `at`: the time of the end, if earlier than now. */
  #end(id: string, end: NonNullable<Incident['end']>, at?: Moment): void {
    const { clock, log, metrics } = this.#parts
    const recoveredAfterMs = end === 'recovered' ? this.#sinceStart(id, at?.now) : undefined
    const incident = this.incidents.change(id, {
      endedAt: at?.wall ?? clock.wall(),
      end,
      ...(recoveredAfterMs !== undefined && { recoveredAfterMs }),
    })
    this.#startedNow.delete(id)
    this.#escalations.get(id)?.()
    this.#escalations.delete(id)
    this.#due.delete(id)
    this.#unconfirmed.delete(id)
    this.#wellSince.delete(id)
    if (incident === undefined) return
    const { server, reason, gap } = incident
    const timeToRecoverMs = timeToRecover(incident)
    // With a gap the duration is only an upper bound.
    if (timeToRecoverMs !== undefined && gap === undefined)
      metrics.timeToRecover.series({ reason }).observe(timeToRecoverMs / 1000)
    log.info({ server, incident: id, reason, end, timeToRecoverMs }, 'incident closed')
    this.#notify(incident, 'closed')
  }

  /** Returns the age of an incident by the monotonic clock; undefined for incidents of an earlier process. */
  #sinceStart(id: string, now = this.#parts.clock.now()): Millis | undefined {
    const startedNow = this.#startedNow.get(id)
    return startedNow === undefined ? undefined : now - startedNow
  }

  #escalateInTime({ id, startedAt, escalatedAt }: Incident): void {
    this.#escalations.get(id)?.()
    if (escalatedAt !== undefined) return
    const { clock } = this.#parts
    const openMs = this.#sinceStart(id) ?? Math.max(0, clock.wall() - startedAt)
    const leftMs = Math.max(0, (this.#escalateMs ?? 0) - openMs)
    this.#escalations.set(
      id,
      clock.after(Math.min(leftMs, LONGEST_TIMER_MS), () => {
        this.#escalations.delete(id)
        // The incident may be over. The next failed probe confirms that the incident continues, and escalates it.
        if (this.#wellSince.has(id) || this.#unconfirmed.has(id)) this.#due.add(id)
        else this.#escalate(id)
      }),
    )
  }

  #escalate(id: string): void {
    const { clock, log } = this.#parts
    const escalatedAfterMs = this.#sinceStart(id)
    const incident = this.incidents.change(id, {
      escalatedAt: clock.wall(),
      ...(escalatedAfterMs !== undefined && { escalatedAfterMs }),
    })
    if (incident === undefined) return
    log.error({ server: incident.server, incident: id, reason: incident.reason }, 'incident continues')
    this.#notify(incident, 'escalated')
  }

  /** Notifies each receiver once per event. Only receivers that got an earlier notice get the notice of the end. */
  #notify(incident: Incident, event: NoticeEvent): void {
    const notices = { ...incident.notices }
    const receivers = { ...incident.receivers }
    const told: string[] = []
    for (const [webhook, receiver] of this.#notifier.receivers) {
      const wasTold = this.#wasTold(incident, webhook, receiver)
      if (event === 'closed' && !wasTold) continue
      // Ignores notices to an earlier receiver of the same webhook name.
      const known = wasTold ? notices[webhook] : undefined
      if (known?.[event] !== undefined) continue
      notices[webhook] = { ...known, [event]: 'pending' }
      receivers[webhook] = receiver
      told.push(webhook)
    }
    const changed = this.incidents.change(incident.id, { notices, receivers })
    if (changed === undefined) return
    // Saves first: a process killed right after the notice must not leave a notified but forgotten incident.
    void this.incidents.save().then(() => {
      for (const webhook of told) this.#send(webhook, event, changed)
    })
  }

  /** Whether a receiver had a notice of the begin or escalation of an incident, sent or pending. */
  #wasTold(incident: Incident | undefined, webhook: string, receiver: string): boolean {
    const known = incident?.notices[webhook]
    const isSame = incident?.receivers[webhook] === receiver
    return isSame && (known?.opened !== undefined || known?.escalated !== undefined)
  }

  #send(webhook: string, event: NoticeEvent, incident: Incident): void {
    this.#notifier.send(webhook, { event, incident, environment: this.#parts.environment })
  }

  /** Sends the pending notices of an earlier process, oldest incident first. */
  #tellWhatIsLeft(): void {
    for (const incident of [...this.incidents.list()].reverse())
      for (const event of noticeEvents)
        for (const webhook of this.#notifier.receivers.keys())
          if (this.incidents.get(incident.id)?.notices[webhook]?.[event] === 'pending')
            this.#send(webhook, event, incident)
  }

  #noted({ webhook, receiver, notice, result, why, tries }: NoticeOutcome): void {
    const { log, metrics } = this.#parts
    metrics.notices.inc({ webhook, result })
    const about = isAnnouncement(notice) ? { notice: keyOf(notice) } : { incident: notice.incident.id }
    const line = { webhook, ...about, event: notice.event, why, tries }
    if (result === 'delivered') log.info(line, 'notice delivered')
    else if (result === 'retried') log.warn(line, 'notice not delivered: trying again')
    else log.error(line, 'notice not delivered')
    if (result === 'retried' || isAnnouncement(notice)) return
    const incident = this.incidents.get(notice.incident.id)
    if (incident === undefined) return
    const before = incident.notices
    const state = result === 'delivered' ? ('delivered' as const) : ('failed' as const)
    const notices = { ...before, [webhook]: { ...before[webhook], [notice.event]: state } }
    // Records the receiver of the try: the webhook may have changed while the notice waited.
    const receivers =
      result === 'dropped' ? incident.receivers : { ...incident.receivers, [webhook]: receiver }
    this.incidents.change(incident.id, { notices, receivers })
  }
}
