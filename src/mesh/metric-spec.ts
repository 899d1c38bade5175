type Kind = 'counter' | 'gauge' | 'histogram'

/** A metric as plain data: code that counts does not depend on the exporter. */
export interface MetricSpec<Type extends Kind = Kind, Label extends string = string> {
  readonly type: Type
  /** Begins with `breakwater_`, or is the Prometheus form of a name from OpenTelemetry's conventions. */
  readonly name: string
  readonly help: string
  readonly labels: readonly Label[]
  /** The largest possible number of series, in words. */
  readonly bound: string
  /** Upper bounds of a histogram, ascending. */
  readonly buckets: readonly number[]
}

function line<Type extends Kind>(type: Type, prefix = 'breakwater_') {
  return <const Label extends string = never>(
    name: string,
    help: string,
    labels: readonly Label[],
    bound: string,
    buckets: readonly number[] = [],
  ): MetricSpec<Type, Label> => ({ type, name: prefix + name, help, labels, bound, buckets })
}

/** Arguments: name without `breakwater_`, help, labels, bound, and a histogram's buckets. */
export const counter = line('counter')
export const gauge = line('gauge')
export const histogram = line('histogram')
/** Like `histogram`, for metrics whose full names come from OpenTelemetry's conventions. */
export const conventionalHistogram = line('histogram', '')
