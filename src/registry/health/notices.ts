import { configHash } from '../../config/hash.ts'
import type { WebhookConfig } from '../../config/schema/health-schema.ts'
import { version } from '../../protocol/identity.ts'
import { roundedDuration } from '../../units/duration.ts'
import type { Incident, NoticeEvent } from './incidents.ts'

/** A message to a webhook. */
export type Notice = IncidentNotice | Announcement

/** An event of an incident, with the incident as of the event. */
export interface IncidentNotice {
  readonly event: NoticeEvent
  readonly incident: Incident
  /** `gateway.environment`. */
  readonly environment: string
}

/** News of planned work, such as a GameDay. An announcement pages nobody. */
export interface Announcement {
  /** The same for each notice of the same news, so that a receiver can drop duplicates. */
  readonly id: string
  /** Such as `gameday.paused`. */
  readonly event: string
  /** The emoji of Slack in front of the words. */
  readonly mark: string
  /** One line. */
  readonly words: string
  readonly source: string
  /** Milliseconds since the epoch. */
  readonly at: number
  /** `gateway.environment`. */
  readonly environment: string
  /** The facts for programs, by the name of their kind, such as `{ gameDay: … }`. */
  readonly facts: Readonly<Record<string, object>>
}

/** One request to a webhook. */
export interface NoticeRequest {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/**
 * Returns the identity of a webhook's receiver, 16 hex digits. The identity depends on type, URL and routing key, not
 * on the webhook's name. The identity is a hash, so secrets cannot be recovered.
 */
export function receiverOf(webhook: WebhookConfig): string {
  const { type, url } = webhook
  return configHash(type === 'pagerduty' ? [type, url, webhook.routingKey] : [type, url])
}

/** Returns the request of a notice in the format of the webhook's type; undefined where `pagesPeople`. */
export function requestOf(webhook: WebhookConfig, notice: Notice): NoticeRequest | undefined {
  const headers = {
    'content-type': 'application/json',
    'user-agent': `breakwater/${version}`,
    // The same at each retry, so a receiver can drop duplicates.
    'idempotency-key': keyOf(notice),
  }
  switch (webhook.type) {
    case 'json':
      return {
        url: webhook.url,
        headers: { ...headers, ...webhook.headers },
        body: JSON.stringify(jsonOf(notice)),
      }
    case 'slack':
      return { url: webhook.url, headers, body: JSON.stringify({ text: slackText(notice) }) }
    case 'pagerduty': {
      const url = isAnnouncement(notice) ? changeUrlOf(webhook.url) : webhook.url
      const event = isAnnouncement(notice) ? pagerDutyChange(notice) : pagerDutyEvent(notice)
      if (url === undefined) return undefined
      return { url, headers, body: JSON.stringify({ routing_key: webhook.routingKey, ...event }) }
    }
  }
}

export const isAnnouncement = (notice: Notice): notice is Announcement => 'facts' in notice

/** Returns the identity of a notice, the same at each retry. */
export const keyOf = (notice: Notice): string =>
  isAnnouncement(notice) ? notice.id : `${notice.incident.id}:${notice.event}`

/** Whether each message to the webhook pages people, so that the webhook can take no announcement. */
export const pagesPeople = (webhook: WebhookConfig): boolean =>
  webhook.type === 'pagerduty' && changeUrlOf(webhook.url) === undefined

/**
 * Returns the URL for change events of PagerDuty, which take the same key and page nobody. Undefined for another URL
 * than that of the Events API v2, such as that of a relay.
 */
function changeUrlOf(url: string): string | undefined {
  const parsed = new URL(url)
  if (!parsed.pathname.endsWith('/v2/enqueue')) return undefined
  parsed.pathname = parsed.pathname.replace(/enqueue$/, 'change/enqueue')
  return parsed.href
}

const iso = (ms: number) => new Date(ms).toISOString()
const isoOrNothing = (ms: number | undefined) => (ms === undefined ? undefined : iso(ms))

/** Returns an incident as shown to people and programs. */
export function shown(incident: Incident) {
  const { id, server, reason, reasons, message, startedAt, detectedAt, endedAt, gap } = incident
  return {
    id,
    server,
    state: endedAt === undefined ? ('open' as const) : ('closed' as const),
    reason,
    reasons,
    message,
    lastWellAt: isoOrNothing(incident.lastWellAt),
    startedAt: iso(startedAt),
    detectedAt: iso(detectedAt),
    escalatedAt: isoOrNothing(incident.escalatedAt),
    endedAt: isoOrNothing(endedAt),
    end: incident.end,
    timeToDetectMs: timeToDetect(incident),
    timeToRecoverMs: timeToRecover(incident),
    gap: gap && { from: iso(gap.from), to: iso(gap.to) },
  }
}

/** Returns the measured duration, else the wall-clock difference, at least 0 because the clock may be set back. */
const lapse = (measuredMs: number | undefined, from: number, to: number) =>
  Math.max(0, Math.round(measuredMs ?? to - from))

/**
 * Returns the time to the detection in milliseconds, from the last good probe, or from a first sign that was no probe.
 */
export const timeToDetect = ({ startedAt, detectedAt, detectedAfterMs }: Incident): number =>
  lapse(detectedAfterMs, startedAt, detectedAt)

/** Returns the time from start to recovery, in milliseconds; undefined without a recovery. */
export const timeToRecover = ({ startedAt, endedAt, end, recoveredAfterMs }: Incident): number | undefined =>
  endedAt === undefined || end !== 'recovered' ? undefined : lapse(recoveredAfterMs, startedAt, endedAt)

function nameOf({ event, incident }: IncidentNotice): string {
  return `incident.${event === 'closed' && incident.end === 'recovered' ? 'recovered' : event}`
}

function jsonOf(notice: Notice) {
  if (isAnnouncement(notice)) return { event: notice.event, environment: notice.environment, ...notice.facts }
  return { event: nameOf(notice), environment: notice.environment, incident: shown(notice.incident) }
}

/** Returns a line with event, server and reason. */
function inShort({ event, incident, environment }: IncidentNotice): string {
  const { server, reason, message, startedAt, detectedAt, escalatedAt, escalatedAfterMs } = incident
  const where = `MCP server ${server} (${environment})`
  const age = () => roundedDuration(lapse(escalatedAfterMs, startedAt, escalatedAt ?? detectedAt))
  switch (event) {
    case 'opened':
      return `${where} is failing, ${reason}: ${message}; detected after ${roundedDuration(timeToDetect(incident))}`
    case 'escalated':
      return `${where} has been failing for ${age()}, ${reason}: ${message}`
    case 'closed':
      return `${where} ${howEnded(incident)}`
  }
}

function howEnded(incident: Incident): string {
  const { end, reason, gap } = incident
  switch (end) {
    case 'removed':
      return `was removed from the config; its incident (${reason}) is closed`
    case 'unwatched':
      return `is no longer probed; its incident (${reason}) is closed`
    case 'recovered':
    case undefined: {
      const most = gap === undefined ? '' : 'at most '
      return `has recovered after ${most}${roundedDuration(timeToRecover(incident) ?? 0)} (${reason})`
    }
  }
}

/** Escapes Slack's special characters, so text of servers makes no links and mentions nobody. */
function slackText(notice: Notice): string {
  const marks = { opened: ':red_circle:', escalated: ':rotating_light:', closed: ':large_green_circle:' }
  const [mark, words] = isAnnouncement(notice)
    ? [notice.mark, notice.words]
    : [marks[notice.event], inShort(notice)]
  return `${mark} ${words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')}`
}

/** Longest summary that PagerDuty takes, in characters. */
const LONGEST_SUMMARY = 1_024

function pagerDutyChange({ words, source, at, facts }: Announcement) {
  return {
    payload: { summary: words.slice(0, LONGEST_SUMMARY), source, timestamp: iso(at), custom_details: facts },
  }
}

function pagerDutyEvent(notice: IncidentNotice) {
  const { event, incident, environment } = notice
  // PagerDuty matches events of the same incident by this key.
  const dedup_key = `breakwater:${incident.id}`
  if (event === 'closed') return { event_action: 'resolve', dedup_key }
  return {
    event_action: 'trigger',
    dedup_key,
    payload: {
      summary: inShort(notice).slice(0, LONGEST_SUMMARY),
      source: incident.server,
      severity: event === 'escalated' ? 'critical' : 'error',
      timestamp: iso(incident.startedAt),
      component: incident.server,
      group: environment,
      class: incident.reason,
      custom_details: shown(incident),
    },
  }
}
