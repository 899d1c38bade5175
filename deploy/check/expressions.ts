import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'yaml'
import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import { deployFolder } from '../paths.ts'

/** A PromQL expression, and who shows or records it. */
export interface Expression {
  readonly where: string
  readonly expr: string
  /** Whether only its value now is of interest. */
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

/** The rules as they are committed. */
export function committedRules(): (RecordingRule | AlertRule)[] {
  return readdirSync(rulesFolder).flatMap((file) => {
    const text = readFileSync(rulesFolder + file, 'utf8')
    const { groups } = parse(text) as { groups: { rules: (RecordingRule | AlertRule)[] }[] }
    return groups.flatMap(({ rules }) => rules)
  })
}

export const isAlert = (rule: RecordingRule | AlertRule): rule is AlertRule => 'alert' in rule

/** The dashboards as they are committed. */
export function committedDashboards(): Dashboard[] {
  return readdirSync(dashboardsFolder).map(
    (file) => JSON.parse(readFileSync(dashboardsFolder + file, 'utf8')) as Dashboard,
  )
}

interface Target {
  readonly expr: string
  readonly instant?: boolean
}

/** Everything that dashboards ask for. */
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

/** A variable whose values are those that `label` has in a set of series. */
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
