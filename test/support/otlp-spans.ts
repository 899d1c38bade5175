import { doubleOf, messagesIn, numberIn, readFields, textIn, type Fields } from './protobuf.ts'

export type AttributeValue = string | number | boolean | undefined | AttributeValue[]
export type AttributeMap = Readonly<Record<string, AttributeValue>>

export interface ReceivedEvent {
  readonly name: string
  readonly attributes: AttributeMap
  readonly atNanos: bigint
}

/** A span, as a collector gets spans. */
export interface ReceivedSpan {
  readonly name: string
  readonly kind: 'internal' | 'server' | 'client' | 'other'
  readonly traceId: string
  readonly spanId: string
  /** Empty for none. */
  readonly parentSpanId: string
  readonly traceState: string
  readonly startNanos: bigint
  readonly endNanos: bigint
  readonly attributes: AttributeMap
  readonly events: readonly ReceivedEvent[]
  readonly links: readonly Pick<ReceivedSpan, 'traceId' | 'spanId' | 'traceState'>[]
  readonly status: 'unset' | 'ok' | 'error'
  readonly message: string
  /** Attributes of the sending process. */
  readonly resource: AttributeMap
}

const kinds = ['other', 'internal', 'server', 'client'] as const
const statuses = ['unset', 'ok', 'error'] as const

/** The spans in an `ExportTraceServiceRequest`. Numbers of fields: opentelemetry-proto, `trace/v1/trace.proto`. */
export function spansIn(body: Buffer): ReceivedSpan[] {
  return messagesIn(readFields(body), 1).flatMap((resourceSpans) => {
    const resource = messagesIn(resourceSpans, 1).map((fields) => attributesIn(fields, 1))[0] ?? {}
    return messagesIn(resourceSpans, 2).flatMap((scopeSpans) =>
      messagesIn(scopeSpans, 2).map((span) => spanOf(span, resource)),
    )
  })
}

function spanOf(span: Fields, resource: AttributeMap): ReceivedSpan {
  const status = messagesIn(span, 15)[0]
  return {
    traceId: textIn(span, 1, 'hex'),
    spanId: textIn(span, 2, 'hex'),
    traceState: textIn(span, 3),
    parentSpanId: textIn(span, 4, 'hex'),
    name: textIn(span, 5),
    kind: kinds[Number(numberIn(span, 6))] ?? 'other',
    startNanos: numberIn(span, 7),
    endNanos: numberIn(span, 8),
    attributes: attributesIn(span, 9),
    events: messagesIn(span, 11).map((event) => ({
      atNanos: numberIn(event, 1),
      name: textIn(event, 2),
      attributes: attributesIn(event, 3),
    })),
    links: messagesIn(span, 13).map((link) => ({
      traceId: textIn(link, 1, 'hex'),
      spanId: textIn(link, 2, 'hex'),
      traceState: textIn(link, 3),
    })),
    status: status === undefined ? 'unset' : (statuses[Number(numberIn(status, 3))] ?? 'unset'),
    message: status === undefined ? '' : textIn(status, 2),
    resource,
  }
}

export function attributesIn(fields: Fields, number: number): AttributeMap {
  const pairs = messagesIn(fields, number).map((pair) => {
    const value = messagesIn(pair, 2)[0]
    return [textIn(pair, 1), value === undefined ? undefined : anyValue(value)] as const
  })
  return Object.fromEntries(pairs)
}

/** An `AnyValue`: text, bool, int, double or array. */
function anyValue(value: Fields): AttributeValue {
  if (value.has(1)) return textIn(value, 1)
  if (value.has(2)) return numberIn(value, 2) === 1n
  if (value.has(3)) return Number(BigInt.asIntN(64, numberIn(value, 3)))
  if (value.has(4)) return doubleOf(numberIn(value, 4))
  return messagesIn(value, 5).flatMap((array) => messagesIn(array, 1).map(anyValue))
}
