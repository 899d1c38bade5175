import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import {
  committedDashboards,
  committedRules,
  dashboardExpressions,
  isAlert,
  variableQueries,
} from './expressions.ts'
import type { PrometheusApi, Sample } from './prometheus-api.ts'
import { parse } from './promql.ts'
import { silent } from './silent.ts'
import { substitute } from './substitute.ts'

const chosen = {
  server: 'flaky',
  tool: '(read|typed|write)',
  arm: '(policies/bold|policies/control)',
  plan: '.*',
  job: 'breakwater',
  instance: '.*',
}

/** Asks every query of dashboards and rules over the last `seconds`. Each query must succeed and find something. */
export async function ask(
  prometheus: PrometheusApi,
  seconds: number,
): Promise<{ asked: number; problems: string[] }> {
  const dashboards = committedDashboards()
  const problems: string[] = []
  let asked = 0

  async function expect(where: string, find: () => Promise<boolean>): Promise<void> {
    asked++
    try {
      const found = await find()
      const why = silent.find(([pattern]) => pattern.test(where))?.[1]
      if (found === (why === undefined)) return
      problems.push(found ? `${where}: finds something, although ${why}` : `${where}: finds nothing`)
    } catch (error) {
      problems.push(`${where}: ${(error as Error).message}`)
    }
  }

  for (const { where, expr, instant } of dashboardExpressions(dashboards)) {
    const query = substitute(expr, chosen)
    await expect(where, async () =>
      hasNumbers(await (instant ? prometheus.instant(query) : prometheus.range(query, seconds))),
    )
  }
  for (const { where, series, label } of variableQueries(dashboards)) {
    const query = substitute(series, chosen)
    await expect(where, async () => (await prometheus.labelValues(label, query)).length > 0)
  }
  for (const rule of committedRules()) {
    // A silent alert is the normal state; tests of promtool show that each alert can fire.
    if (isAlert(rule))
      await expect(`alert ${rule.alert}`, async () => Boolean(await prometheus.instant(rule.expr)))
    else await expect(`rule ${rule.record}`, async () => hasNumbers(await prometheus.instant(rule.record)))
  }
  for (const [text, where] of selectorsOf(dashboards))
    await expect(`${where}: ${text}`, async () =>
      hasNumbers(await prometheus.instant(`last_over_time(${text}[${seconds}s])`)),
    )
  for (const { name, health, lastError } of await prometheus.rules())
    if (health !== 'ok') problems.push(`rule ${name} is ${health}: ${lastError ?? 'never evaluated'}`)
  return { asked, problems }
}

/**
 * Returns each selector with its first reader. Selectors are asked separately: a query that replaces missing values by
 * zero would hide a label value that never occurs.
 */
function selectorsOf(dashboards: readonly Dashboard[]): Map<string, string> {
  const selectors = new Map<string, string>()
  const rules = committedRules().map((rule) => ({ where: isAlert(rule) ? rule.alert : rule.record, ...rule }))
  for (const { where, expr } of [...dashboardExpressions(dashboards), ...rules])
    for (const { text } of parse(substitute(expr, chosen)).selectors)
      if (!selectors.has(text)) selectors.set(text, where)
  return selectors
}

/** Returns true if any sample is a number: quantiles without observations are NaN. */
function hasNumbers(samples: readonly Sample[]): boolean {
  return samples.some(({ value, values }) =>
    (values ?? (value === undefined ? [] : [value])).some(([, number]) => number !== 'NaN'),
  )
}
