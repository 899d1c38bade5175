import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'yaml'
import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import { deployFolder } from '../paths.ts'

/** A PromQL expression, with the panel or rule that uses the expression. */
export interface Expression {
  readonly where: string
  readonly expr: string
  /** True: only the current value matters. */
  readonly instant: boolean
}

export interface RecordingRule {
  readonly record: string
  readonly expr: string
}

export interface AlertRule {
  readonly alert: string
  readonly expr: string
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

const rulesFolder = `${deployFolder}prometheus/rules/`
const dashboardsFolder = `${deployFolder}grafana/dashboards/`

export function committedRules(): (RecordingRule | AlertRule)[] {
  return readdirSync(rulesFolder).flatMap((file) => {
    const text = readFileSync(rulesFolder + file, 'utf8')
    const { groups } = parse(text) as { groups: { rules: (RecordingRule | AlertRule)[] }[] }
    return groups.flatMap(({ rules }) => rules)
  })
}

export const isAlert = (rule: RecordingRule | AlertRule): rule is AlertRule => 'alert' in rule

export function committedDashboards(): Dashboard[] {
  return readdirSync(dashboardsFolder).map(
    (file) => JSON.parse(readFileSync(dashboardsFolder + file, 'utf8')) as Dashboard,
  )
}

interface Target {
  readonly expr: string
  readonly instant?: boolean
}

export function dashboardExpressions(dashboards: readonly Dashboard[]): Expression[] {
  return dashboards.flatMap(({ uid, panels = [], annotations }) => [
    ...panels.flatMap((panel) => {
      const { title, targets = [] } = panel as { title?: string; targets?: unknown[] }
      return (targets as Target[]).map(({ expr, instant = false }, index) => ({
        where: `${uid} / ${title} / ${String.fromCharCode(65 + index)}`,
        expr,
        instant,
      }))
    }),
    ...(annotations?.list ?? []).map(({ name, expr = '' }) => ({
      where: `${uid} / annotation "${name}"`,
      expr,
      instant: false,
    })),
  ])
}

/** A variable with the values of `label` in a set of series. */
export interface LabelValues {
  readonly where: string
  readonly series: string
  readonly label: string
}

export function variableQueries(dashboards: readonly Dashboard[]): LabelValues[] {
  return dashboards.flatMap(({ uid, templating }) =>
    (templating?.list ?? []).flatMap(({ name, query }) => {
      const text = typeof query === 'object' ? String(query.query) : ''
      const [, series, label] = /^label_values\((.+), (\w+)\)$/.exec(text) ?? []
      if (series === undefined || label === undefined) return []
      return { where: `${uid} / variable "${name}"`, series, label }
    }),
  )
}
