import {
  committedDashboards,
  committedRules,
  dashboardExpressions,
  isAlert,
  variableQueries,
  type Expression,
} from './expressions.ts'
import { knownMetrics, seriesNames, type KnownMetric } from './known-metrics.ts'
import { parse } from './promql.ts'
import { splitBy } from './splits.ts'
import { substitute } from './substitute.ts'

/** Labels added by Prometheus, and the label of buckets. */
const anywhere = ['job', 'instance', 'le', 'alertname', 'alertstate', 'severity']

const samples = { server: 's', tool: 't', arm: 'a', plan: 'p', job: 'j', instance: 'i' }

/** Expressions that may return a line per arm. In all other expressions an experiment must not split a line. */
const aboutArms = /^breakwater-arms |^rule arm:| \/ variable "/

/** Returns every expression of dashboards and rules, with variables filled in. */
export function allExpressions(): Expression[] {
  const dashboards = committedDashboards()
  return [
    ...dashboardExpressions(dashboards),
    ...variableQueries(dashboards).map(({ where, series }) => ({ where, expr: series, instant: true })),
    ...committedRules().map((rule) => ({
      where: isAlert(rule) ? `alert ${rule.alert}` : `rule ${rule.record}`,
      expr: rule.expr,
      instant: true,
    })),
  ].map((expression) => ({ ...expression, expr: substitute(expression.expr, samples) }))
}

/** Returns mismatches between the code's metrics and their readers, as sentences; empty if everything matches. */
export function disagreements(): string[] {
  const metrics = [...knownMetrics().values()]
  const series = new Map(metrics.flatMap((metric) => seriesNames(metric).map((name) => [name, metric])))
  const recorded = new Set(committedRules().flatMap((rule) => (isAlert(rule) ? [] : rule.record)))
  const read = new Set<string>()
  const problems: string[] = []
  for (const { where, expr } of allExpressions()) {
    const { errors, selectors, grouping } = parse(expr)
    for (const error of errors) problems.push(`${where}: no PromQL near ${error}`)
    const labels = new Set(anywhere)
    let certain = true
    for (const { metric, labels: asked } of selectors) {
      const known = series.get(metric)
      if (known === undefined) {
        certain = false
        if (!recorded.has(metric) && metric !== 'up') problems.push(`${where}: there is no metric ${metric}`)
        continue
      }
      read.add(known.name)
      for (const label of known.labels) labels.add(label)
      for (const label of asked)
        if (!has(known, label)) problems.push(`${where}: ${metric} has no label ${label}`)
    }
    if (!aboutArms.test(where))
      for (const metric of splitBy('arm', expr))
        if (series.get(metric)?.labels.includes('arm') === true)
          problems.push(`${where}: an experiment splits ${metric} by arm`)
    if (!certain) continue
    for (const label of grouping)
      if (!labels.has(label)) problems.push(`${where}: no metric there has a label ${label}`)
  }
  for (const { name } of metrics)
    if (name.startsWith('breakwater_') && !read.has(name))
      problems.push(`${name} is in no dashboard and no rule`)
  return problems
}

const has = ({ labels }: KnownMetric, label: string) => labels.includes(label) || anywhere.includes(label)
