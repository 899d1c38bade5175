import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat'
import { PanelBuilder as TableBuilder } from '@grafana/grafana-foundation-sdk/table'
import { PanelBuilder as LinesBuilder } from '@grafana/grafana-foundation-sdk/timeseries'
import {
  LegendDisplayMode,
  LegendPlacement,
  ReduceDataOptionsBuilder,
  SortOrder,
  StackingConfigBuilder,
  StackingMode,
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from '@grafana/grafana-foundation-sdk/common'
import { neutral, thresholds, type Steps } from './colours.ts'
import { refIdOf, source, target, type Query } from './query.ts'

/** Facts of every panel; `width` is in columns of 24. */
export interface PanelFacts {
  readonly title: string
  /** Meaning, and when to worry: shown behind the "i" of the panel. */
  readonly about: string
  readonly queries: readonly Query[]
  /** A unit of Grafana: percentunit, s, reqps, short, bytes. */
  readonly unit?: string
  readonly width?: number
}

const HEIGHT = 8

function legend(): VizLegendOptionsBuilder {
  return new VizLegendOptionsBuilder()
    .displayMode(LegendDisplayMode.Table)
    .placement(LegendPlacement.Bottom)
    .showLegend(true)
    .calcs(['lastNotNull', 'max'])
}

function tooltip(): VizTooltipOptionsBuilder {
  return new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi).sort(SortOrder.Descending)
}

/** Lines over time. Ratios are drawn from 0 to 1, everything else from 0. */
export function lines({ title, about, queries, unit = 'short', width = 8 }: PanelFacts): LinesBuilder {
  const panel = new LinesBuilder()
    .title(title)
    .description(about)
    .datasource(source)
    .unit(unit)
    .min(0)
    .span(width)
    .height(HEIGHT)
    .lineWidth(1)
    .fillOpacity(8)
    .legend(legend())
    .tooltip(tooltip())
    .targets(queries.map((query, index) => target(query, index)))
  return unit === 'percentunit' ? panel.axisSoftMax(1) : panel
}

/** Areas on top of each other: shares of a whole. */
export function stack(facts: PanelFacts): LinesBuilder {
  return lines(facts)
    .fillOpacity(40)
    .stacking(new StackingConfigBuilder().mode(StackingMode.Normal).group('A'))
}

/** A current number for each series of the query; coloured only if colours have a meaning. */
export function stat({
  title,
  about,
  queries,
  unit = 'short',
  width = 4,
  steps = neutral,
}: PanelFacts & { readonly steps?: Steps }): StatBuilder {
  return new StatBuilder()
    .title(title)
    .description(about)
    .datasource(source)
    .unit(unit)
    .span(width)
    .height(4)
    .noValue('no data')
    .thresholds(thresholds(steps))
    .reduceOptions(new ReduceDataOptionsBuilder().calcs(['lastNotNull']))
    .targets(queries.map((query, index) => target(query, index).instant()))
}

/** A table: a column for each query, by its legend, joined over all labels. */
export function table({ title, about, queries, unit = 'short', width = 24 }: PanelFacts): TableBuilder {
  const columns = queries.map(({ legend }, index) => [`Value #${refIdOf(index)}`, legend] as const)
  return new TableBuilder()
    .title(title)
    .description(about)
    .datasource(source)
    .unit(unit)
    .span(width)
    .height(HEIGHT)
    .filterable(true)
    .targets(queries.map((query, index) => target(query, index).instant().asTable()))
    .withTransformation({ id: 'merge', options: {} })
    .withTransformation({
      id: 'organize',
      options: {
        excludeByName: { Time: true, __name__: true },
        renameByName: Object.fromEntries(columns),
      },
    })
}
