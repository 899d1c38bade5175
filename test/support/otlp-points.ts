import { attributesIn, type AttributeMap } from './otlp-spans.ts'
import { doubleOf, messagesIn, numberIn, readFields, textIn, type Fields } from './protobuf.ts'

/** A point of a histogram, as a collector gets points. */
export interface ReceivedPoint {
  readonly metric: string
  readonly unit: string
  /** True: the point covers everything since `startNanos`. */
  readonly isCumulative: boolean
  readonly attributes: AttributeMap
  readonly startNanos: bigint
  readonly atNanos: bigint
  readonly count: number
  readonly sum: number
  readonly bounds: readonly number[]
  readonly counts: readonly number[]
  /** Attributes of the sending process. */
  readonly resource: AttributeMap
}

/** Points of an `ExportMetricsServiceRequest`. Field numbers: opentelemetry-proto, `metrics/v1/metrics.proto`. */
export function pointsIn(body: Buffer): ReceivedPoint[] {
  return messagesIn(readFields(body), 1).flatMap((resourceMetrics) => {
    const resource = messagesIn(resourceMetrics, 1).map((fields) => attributesIn(fields, 1))[0] ?? {}
    return messagesIn(resourceMetrics, 2)
      .flatMap((scopeMetrics) => messagesIn(scopeMetrics, 2))
      .flatMap((metric) =>
        messagesIn(metric, 9).flatMap((histogram) =>
          messagesIn(histogram, 1).map((point): ReceivedPoint => ({
            metric: textIn(metric, 1),
            unit: textIn(metric, 3),
            isCumulative: numberIn(histogram, 2) === 2n,
            attributes: attributesIn(point, 9),
            startNanos: numberIn(point, 2),
            atNanos: numberIn(point, 3),
            count: Number(numberIn(point, 4)),
            sum: doubleOf(numberIn(point, 5)),
            counts: eightBytesIn(point, 6).map(Number),
            bounds: eightBytesIn(point, 7).map(doubleOf),
            resource,
          })),
        ),
      )
  })
}

/** The numbers of 8 bytes in a packed field. */
function eightBytesIn(fields: Fields, number: number): bigint[] {
  const packed = Buffer.concat((fields.get(number) ?? []).filter((value) => Buffer.isBuffer(value)))
  return Array.from({ length: packed.length / 8 }, (_, index) => packed.readBigUInt64LE(8 * index))
}
