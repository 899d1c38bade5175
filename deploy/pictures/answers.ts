import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import type { PrometheusApi, Sample, Span } from '../check/prometheus-api.ts'
import { substitute, type Values } from '../check/substitute.ts'
import { annotationsOf, panelsOf, variablesOf, type Panel } from './panels.ts'

/** Points of each line, at most. */
const POINTS = 90

/** A line or a number: its name and its values at each step; null where absent. */
export interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly values: readonly (number | null)[]
  /** Index of the panel's query, from 0. */
  readonly query: number
}

/** An action on the gateway during the run, in seconds from its start. */
export interface Mark {
  readonly name: string
  readonly colour: string
  readonly at: number
}

/** A dashboard, and all answers of a Prometheus over a run. */
export interface Answers {
  readonly uid: string
  readonly title: string
  readonly about: string
  /** The viewer's choices, by variable. */
  readonly chosen: Readonly<Record<string, string>>
  readonly panels: readonly { readonly panel: Panel; readonly series: readonly Series[] }[]
  readonly marks: readonly Mark[]
  /** Length of the run, and distance of values, in seconds. */
  readonly seconds: number
  readonly step: number
}

/** The run shown in the pictures, in seconds since the epoch and in seconds. */
export interface Run {
  readonly start: number
  readonly seconds: number
}

/** Asks a dashboard's queries over a whole run; `picks` are the values of variables that do not stay `all`. */
export async function answersTo(
  dashboard: Dashboard,
  prometheus: Pick<PrometheusApi, 'between' | 'instant'>,
  { start, seconds }: Run,
  picks: Values,
): Promise<Answers> {
  const span = { start, end: start + seconds, step: seconds / POINTS }
  const names = variablesOf(dashboard)
  const values = Object.fromEntries(names.map((name) => [name, picks[name] ?? '.*']))
  const fill = (expr: string) => substitute(expr, { ...values, __range: `${seconds}s` })
  const ask = async (panel: Panel) => {
    const found = await Promise.all(
      panel.targets.map(({ expr }) =>
        panel.type === 'timeseries'
          ? prometheus.between(fill(expr), span)
          : prometheus.instant(fill(expr), span.end),
      ),
    )
    return found.flatMap((samples, query) =>
      samples.map((sample) => seriesOf(sample, panel.targets[query]?.legendFormat ?? '', query, span)),
    )
  }
  const { uid = '', title = '', description = '' } = dashboard
  return {
    uid,
    title,
    about: description,
    chosen: Object.fromEntries(names.map((name) => [name, picks[name] ?? 'All'])),
    panels: await Promise.all(
      panelsOf(dashboard).map(async (panel) => ({ panel, series: await ask(panel) })),
    ),
    marks: (
      await Promise.all(
        annotationsOf(dashboard).map(async ({ name, colour, expr }) =>
          (await prometheus.between(fill(expr), span))
            .flatMap((sample) => beginnings(sample, span))
            .map((at) => ({ name, colour, at })),
        ),
      )
    ).flat(),
    seconds,
    step: span.step,
  }
}

function seriesOf({ metric, value, values = [] }: Sample, legend: string, query: number, span: Span): Series {
  const points = value === undefined ? stepped(values, span) : [numberOf(value[1])]
  return { name: named(legend, metric), labels: metric, values: points, query }
}

/** Returns the values at the steps of the span; null at steps without a value. */
function stepped(values: NonNullable<Sample['values']>, { start, step }: Span): (number | null)[] {
  const points = new Array<number | null>(POINTS + 1).fill(null)
  for (const [time, value] of values) points[Math.round((time - start) / step)] = numberOf(value)
  return points
}

/** Returns null for NaN: quantiles without observations. */
function numberOf(text: string): number | null {
  const number = Number(text)
  return Number.isFinite(number) ? number : null
}

/** Returns the legend with labels in place of `{{…}}`. A name without a letter counts as missing. */
function named(legend: string, labels: Sample['metric']): string {
  const name = legend.replace(/\{\{(\w+)\}\}/g, (_, label: string) => labels[label] ?? '').trim()
  return name === '' ? '(no name)' : name
}

/** Returns the starts of a condition, in seconds from the start of the run. */
function beginnings({ values = [] }: Sample, { start, step }: Span): number[] {
  return values
    .filter(([time], index) => index === 0 || time - (values[index - 1]?.[0] ?? 0) > step * 1.5)
    .map(([time]) => time - start)
}
