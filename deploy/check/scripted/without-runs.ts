import { committedDashboards, dashboardExpressions } from '../expressions.ts'
import type { PrometheusApi } from '../prometheus-api.ts'
import { substitute } from '../substitute.ts'

/** Metrics of runs, apart from the text of the other metrics. */
const ofRuns = /breakwater_(?:plan|runs?)_/

/**
 * Returns queries of the dashboard of runs that fail, or find a run, at a gateway with an empty index; as sentences. A
 * count has to be 0, and everything else about runs empty.
 */
export async function foundWithoutRuns(prometheus: PrometheusApi): Promise<string[]> {
  const board = committedDashboards().filter(({ uid }) => uid === 'breakwater-runs')
  const problems: string[] = []
  for (const { where, expr } of dashboardExpressions(board)) {
    const isCount = expr.endsWith(' or vector(0)')
    try {
      const found = await prometheus.instant(substitute(expr, { plan: '.*' }))
      const values = found.map(({ value }) => value?.[1])
      if (ofRuns.test(expr) && values.join() !== (isCount ? '0' : ''))
        problems.push(`${where}: finds ${values.join(', ') || 'nothing'} in an empty index`)
    } catch (error) {
      problems.push(`${where}, with an empty index: ${(error as Error).message}`)
    }
  }
  return problems
}
