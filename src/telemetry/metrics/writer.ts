import { Registry } from 'prom-client'
import type { Exemplar } from './spread-series.ts'

export type Format = 'text' | 'openmetrics'

/** The content type of each format. */
export const contentTypes: Readonly<Record<Format, string>> = {
  text: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
}

/** A metric and its series, as prom-client's `get()` gives them, or a histogram of ours. */
export interface Family {
  readonly name: string
  readonly help: string
  readonly type: unknown
  readonly values: readonly {
    readonly metricName?: string
    /** More labels, in front. */
    readonly bound?: Labels
    readonly labels: Labels
    readonly value: number
    readonly exemplar?: Exemplar | undefined
  }[]
}

type Labels = Readonly<Record<string, string | number | undefined>>

/** Labels as text; most label objects are the same at the next scrape. */
const texts = new WeakMap<object, string>()

/**
 * Writes a metric, line by line. Not left to prom-client, whose text of thousands of series stalls everything, and
 * which, after it has written OpenMetrics once, has renamed its counters for the other format too.
 */
export function* linesOf({ name, help, type, values }: Family, format: Format): Generator<string> {
  const open = format === 'openmetrics'
  // A family of counters is called as its samples are without `_total` in OpenMetrics.
  const family = open && type === 'counter' ? name.replace(/_total$/, '') : name
  yield `# HELP ${family} ${escaped(help)}\n`
  yield `# TYPE ${family} ${String(type)}\n`
  for (const { metricName = name, bound = NONE, labels, value, exemplar } of values) {
    const line = `${metricName}${braced(textOf(bound), textOf(labels))} ${numeral(value)}`
    yield open && exemplar ? `${line}${pointer(exemplar)}\n` : `${line}\n`
  }
}

const NONE: Labels = {}

function textOf(labels: Labels): string {
  let text = texts.get(labels)
  if (text === undefined) {
    text = pairs(labels)
    texts.set(labels, text)
  }
  return text
}

function pairs(labels: Labels): string {
  let text = ''
  for (const name in labels) text += `${text === '' ? '' : ','}${name}="${quoted(String(labels[name]))}"`
  return text
}

function braced(some: string, more: string): string {
  if (some === '') return more === '' ? '' : `{${more}}`
  return more === '' ? `{${some}}` : `{${some},${more}}`
}

const pointer = ({ labelSet, value, timestamp }: Exemplar) =>
  ` # {${pairs(labelSet)}} ${numeral(value)} ${timestamp}`

const escaped = (text: string) => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
const quoted = (text: string) => (/["\\\n]/.test(text) ? escaped(text).replaceAll('"', '\\"') : text)

function numeral(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}
