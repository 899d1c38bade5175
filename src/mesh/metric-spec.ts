type Kind = 'counter' | 'gauge' | 'histogram'

/** One metric, as plain data: whoever has something to count says so without knowing who counts. */
export interface MetricSpec<Type extends Kind = Kind, Label extends string = string> {
  readonly type: Type
  /** Begins with `breakwater_`, or is the Prometheus form of a name from a convention. */
  readonly name: string
  readonly help: string
  readonly labels: readonly Label[]
  /** How many series there can be at most, in words. */
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

/** Lines of a table: name without `breakwater_`, help, labels, bound. */
export const counter = line('counter')
export const gauge = line('gauge')
export const histogram = line('histogram')
/** The same for metrics whose whole name is given by conventions. */
export const conventionalHistogram = line('histogram', '')
