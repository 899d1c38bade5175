import type {
  Attributes,
  AttributeValue,
  HrTime,
  SpanContext,
  SpanKind,
  SpanStatus,
} from '@opentelemetry/api'
import type { tracing } from '@opentelemetry/sdk-node'
import type { Variables } from './settings.ts'

export interface SpanLimits {
  /** Longest text in an attribute, in UTF-16 code units. */
  readonly valueLength: number
  readonly attributes: number
  readonly events: number
}

/**
 * Returns the limits from the environment:
 * https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#span-limits.
 */
export function readLimits(env: Variables): SpanLimits {
  const limit = (fallback: number, ...names: readonly string[]) => {
    for (const name of names) {
      const given = env[name]?.trim()
      if (given && Number(given) >= 0) return Number(given)
    }
    return fallback
  }
  return {
    valueLength: limit(
      Infinity,
      'OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT',
      'OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT',
    ),
    attributes: limit(MOST_ATTRIBUTES, 'OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT', 'OTEL_ATTRIBUTE_COUNT_LIMIT'),
    events: limit(128, 'OTEL_SPAN_EVENT_COUNT_LIMIT'),
  }
}

/** The properties shared by all spans of the process. */
export interface SpanOrigin extends Pick<tracing.ReadableSpan, 'resource' | 'instrumentationScope'> {
  readonly limits: SpanLimits
}

interface EndedSpanParts {
  readonly name: string
  readonly kind: SpanKind
  readonly context: SpanContext
  readonly parent: SpanContext | undefined
  /** Related spans in addition to the parent; none by default. */
  readonly links?: tracing.ReadableSpan['links']
  readonly startTime: HrTime
  readonly endTime: HrTime
  readonly status: SpanStatus
  readonly attributes: Attributes
}

/**
 * A span of finished work, in the form that exporters read. The SDK's own spans, for work in progress, read each
 * attribute twice and take four times as long.
 */
export class EndedSpan implements tracing.ReadableSpan {
  readonly name: string
  readonly kind: SpanKind
  readonly parentSpanContext?: SpanContext
  readonly startTime: HrTime
  readonly endTime: HrTime
  readonly duration: HrTime
  readonly status: SpanStatus
  readonly attributes: Attributes
  readonly droppedAttributesCount: number
  readonly events: tracing.ReadableSpan['events'] = []
  droppedEventsCount = 0
  readonly links: tracing.ReadableSpan['links']
  readonly droppedLinksCount = 0
  readonly ended = true
  readonly resource: SpanOrigin['resource']
  readonly instrumentationScope: SpanOrigin['instrumentationScope']
  readonly #context: SpanContext
  readonly #limits: SpanLimits

  constructor(
    { name, kind, context, parent, links = [], startTime, endTime, status, attributes }: EndedSpanParts,
    { resource, instrumentationScope, limits }: SpanOrigin,
  ) {
    this.name = name
    this.kind = kind
    this.#context = context
    if (parent !== undefined) this.parentSpanContext = parent
    this.links = links
    this.startTime = startTime
    this.endTime = endTime
    this.duration = between(startTime, endTime)
    this.status = status
    this.droppedAttributesCount = limit(attributes, limits)
    this.attributes = attributes
    this.resource = resource
    this.instrumentationScope = instrumentationScope
    this.#limits = limits
  }

  spanContext(): SpanContext {
    return this.#context
  }

  /** Adds an event. Above the limit, drops the oldest event, as the SDK does. */
  addEvent(name: string, attributes: Attributes, time: HrTime): void {
    const droppedAttributesCount = limit(attributes, this.#limits)
    this.events.push({ name, attributes, time, droppedAttributesCount })
    if (this.events.length <= this.#limits.events) return
    this.events.shift()
    this.droppedEventsCount++
  }
}

/** Default for the most attributes of a span. Breakwater's spans have less than half as many. */
const MOST_ATTRIBUTES = 128

/** Removes attributes above the limit and cuts long values. Returns the number of removed attributes. */
function limit(attributes: Attributes, { valueLength, attributes: most }: SpanLimits): number {
  if (valueLength === Infinity && most >= MOST_ATTRIBUTES) return 0
  let count = 0
  let dropped = 0
  for (const key in attributes) {
    if (++count > most) {
      Reflect.deleteProperty(attributes, key)
      dropped++
    } else if (valueLength !== Infinity) attributes[key] = cut(attributes[key], valueLength)
  }
  return dropped
}

function cut(value: AttributeValue | undefined, length: number): AttributeValue | undefined {
  if (typeof value === 'string') return value.slice(0, length)
  if (!Array.isArray(value)) return value
  return value.map((item) => (typeof item === 'string' ? item.slice(0, length) : item)) as AttributeValue
}

function between([fromSeconds, fromNanos]: HrTime, [toSeconds, toNanos]: HrTime): HrTime {
  const nanos = toNanos - fromNanos
  return nanos < 0 ? [toSeconds - fromSeconds - 1, nanos + 1e9] : [toSeconds - fromSeconds, nanos]
}
