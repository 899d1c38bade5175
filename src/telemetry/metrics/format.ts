import { Registry } from 'prom-client'

export type Format = 'text' | 'openmetrics'

export const contentTypes: Readonly<Record<Format, string>> = {
  text: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
}

export type Labels = Readonly<Record<string, string>>

/** An observation of a bucket, with the trace of its call. */
export interface Exemplar {
  readonly labelSet: Labels
  readonly value: number
  /** Seconds since the Unix epoch. */
  readonly timestamp: number
}

/** Returns the first lines of a metric. In OpenMetrics a counter family has its samples' name without `_total`. */
export function introOf(name: string, help: string, type: string, format: Format): string {
  const family = format === 'openmetrics' && type === 'counter' ? name.replace(/_total$/, '') : name
  return `# HELP ${family} ${escaped(help)}\n# TYPE ${family} ${type}\n`
}

/** Returns the beginning of a line, before its value. */
export function headOf(name: string, labels: Readonly<Record<string, string | number | undefined>>): string {
  const text = pairs(labels)
  // Uses `join`, which makes one piece of text in V8. With `+`, V8 keeps several pieces, and copying takes three times
  // as long.
  return text === '' ? `${name} ` : [name, '{', text, '} '].join('')
}

/** Returns the end of a line with an exemplar. */
export const pointer = ({ labelSet, value, timestamp }: Exemplar) =>
  ` # {${pairs(labelSet)}} ${numeral(value)} ${timestamp}`

export function numeral(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}

function pairs(labels: Readonly<Record<string, string | number | undefined>>): string {
  let text = ''
  for (const name in labels) text += `${text === '' ? '' : ','}${name}="${quoted(String(labels[name]))}"`
  return text
}

const escaped = (text: string) => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
const quoted = (text: string) => (/["\\\n]/.test(text) ? escaped(text).replaceAll('"', '\\"') : text)
