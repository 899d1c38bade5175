import type { Builder } from '@grafana/grafana-foundation-sdk/cog'
import {
  AnnotationQueryBuilder,
  DashboardBuilder,
  DashboardCursorSync,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  RowBuilder,
  VariableRefresh,
  VariableSort,
  type Dashboard,
  type Panel,
} from '@grafana/grafana-foundation-sdk/dashboard'
import { source } from './query.ts'

const TAG = 'breakwater'

/** A headline and the panels below. */
export interface Row {
  readonly title: string
  readonly panels: readonly Builder<Panel>[]
}

/** A variable with the values of a label; `all` and multiple choice unless `one` is set. */
export interface Choice {
  readonly name: string
  /** A PromQL series selector with a label of this name. */
  readonly of: string
  readonly one?: boolean
}

export interface BoardFacts {
  /** Also the file name, behind `breakwater-`. */
  readonly uid: string
  readonly title: string
  readonly about: string
  readonly choices?: readonly Choice[]
  readonly rows: readonly Row[]
}

function variableOf({ name, of, one = false }: Choice): QueryVariableBuilder {
  const variable = new QueryVariableBuilder(name)
    .datasource(source)
    .query({ query: `label_values(${of}, ${name})`, refId: name })
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .sort(VariableSort.AlphabeticalAsc)
  return one ? variable : variable.multi(true).includeAll(true).allValue('.*').current(everything)
}

const everything = { selected: true, text: 'All', value: '$__all' }

/**
 * Returns an expression above 0 if a gauge has changed. The window reaches back to the sample before: a shorter window
 * loses changes.
 */
const changed = (gauge: string) => `changes(${gauge}[$__rate_interval]) > 0`

/** Marks on the time axis: operators' actions on the gateway, incidents of servers, and the time of each run. */
const marks = [
  ['Faults armed', 'red', `breakwater_chaos_armed == 1 and ${changed('breakwater_chaos_armed')}`],
  ['Faults disarmed', 'green', `breakwater_chaos_armed == 0 and ${changed('breakwater_chaos_armed')}`],
  ['Config reloaded', 'blue', changed('breakwater_config_reload_timestamp_seconds')],
  [
    'Incident opened',
    'orange',
    `breakwater_incidents_open == 1 and ${changed('breakwater_incidents_open')}`,
    '{{server}} at {{instance}}',
  ],
  [
    'Incident closed',
    'green',
    `breakwater_incidents_open == 0 and ${changed('breakwater_incidents_open')}`,
    '{{server}} at {{instance}}',
  ],
  // Points in a row become a region from the start to the end of the run.
  ['Run', 'purple', 'max_over_time(breakwater_run_active[$__rate_interval])', '{{plan}} at {{instance}}'],
] as const

/** Returns a whole dashboard, as Grafana imports dashboards. */
export function board({ uid, title, about, choices = [], rows }: BoardFacts): Dashboard {
  const dashboard = new DashboardBuilder(`Breakwater / ${title}`)
    .uid(`${TAG}-${uid}`)
    .description(about)
    .tags([TAG])
    .time({ from: 'now-1h', to: 'now' })
    .refresh('30s')
    .timezone('browser')
    .tooltip(DashboardCursorSync.Crosshair)
    .link(
      new DashboardLinkBuilder('Breakwater')
        .type(DashboardLinkType.Dashboards)
        .tags([TAG])
        .asDropdown(true)
        .includeVars(true)
        .keepTime(true),
    )
    .withVariable(new DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'))
  for (const choice of choices) dashboard.withVariable(variableOf(choice))
  for (const [name, color, expr, text = '{{instance}}'] of marks)
    dashboard.annotation(
      new AnnotationQueryBuilder()
        .name(name)
        .datasource(source)
        .enable(true)
        .iconColor(color)
        .expr(expr)
        .step('1m')
        .titleFormat(name)
        .textFormat(text),
    )
  for (const { title, panels } of rows) {
    dashboard.withRow(new RowBuilder(title))
    for (const panel of panels) dashboard.withPanel(panel)
  }
  return withIds(dashboard.build())
}

/** Sets panel ids, because links to a panel name its id and the builder leaves ids to Grafana. */
function withIds(dashboard: Dashboard): Dashboard {
  dashboard.panels?.forEach((panel, index) => (panel.id = index + 1))
  return dashboard
}
