import { DataqueryBuilder, PromQueryFormat } from '@grafana/grafana-foundation-sdk/prometheus'

/** The viewer's Prometheus, so that a dashboard works in any Grafana. */
export const source = { type: 'prometheus', uid: '${datasource}' } as const

export interface Query {
  readonly expr: string
  /** Name of a series: text, with labels in `{{…}}`. */
  readonly legend: string
  /** True: dots lead to traces of the line's calls. */
  readonly exemplars?: boolean
}

export const query = (expr: string, legend: string): Query => ({ expr, legend })

/** A Prometheus query that can ask for a table; the SDK has no method for this format. */
export class Target extends DataqueryBuilder {
  asTable(): this {
    return this.format(PromQueryFormat.Table)
  }
}

/** Returns the letter of a panel's query. */
export const refIdOf = (index: number) => String.fromCharCode(65 + index)

export function target({ expr, legend, exemplars = false }: Query, index: number): Target {
  const built = new Target().datasource(source).refId(refIdOf(index)).expr(expr).legendFormat(legend).range()
  return exemplars ? built.exemplar(true) : built
}

const QUANTILES = [0.5, 0.95, 0.99]

/** Returns the queries with dots that lead to traces on one line: every line would bring the same dots. */
export function traced(queries: readonly Query[]): Query[] {
  return queries.map((query, index) => ({ ...query, exemplars: index === queries.length - 1 }))
}

/** p50, p95 and p99 of a histogram; `by` adds labels that distinguish lines. */
export function quantiles(metric: string, matchers = '', by: readonly string[] = []): Query[] {
  const labels = ['le', ...by].join(', ')
  return QUANTILES.map((quantile) => ({
    expr: `histogram_quantile(${quantile}, sum by (${labels}) (rate(${metric}_bucket${matchers}[$__rate_interval])))`,
    legend: [`p${quantile * 100}`, ...by.map((label) => `{{${label}}}`)].join(' '),
  }))
}

/** Events per second, summed up by labels. */
export function perSecond(metric: string, matchers: string, by: readonly string[]): Query {
  return query(
    `sum by (${by.join(', ')}) (rate(${metric}${matchers}[$__rate_interval]))`,
    by.map((label) => `{{${label}}}`).join(' '),
  )
}
