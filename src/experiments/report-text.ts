import { formatDuration, roundedDuration } from '../units/duration.ts'
import type { MetricReport, Report } from './report.ts'

/** A value of a metric as people read it: `93.4 %`, `12.3 ms`, `1.04`; a dash where there is none. */
export function valueInWords(value: number | null, unit: MetricReport['unit']): string {
  if (value === null || !Number.isFinite(value)) return '–'
  if (unit === 'points') return `${(100 * value).toFixed(1)} %`
  return unit === 'ms' ? `${digits(value)} ms` : digits(value)
}

/** The same for a difference, with its sign; of shares in percentage points. */
export function differenceInWords(value: number | null, unit: MetricReport['unit']): string {
  if (value === null || !Number.isFinite(value)) return '–'
  const sign = value > 0 ? '+' : value < 0 ? '−' : '±'
  const size = Math.abs(value)
  if (unit === 'points') return `${sign}${(100 * size).toFixed(1)} points`
  return unit === 'ms' ? `${sign}${digits(size)} ms` : `${sign}${digits(size)}`
}

const digits = (value: number) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3))

/** The report of an experiment as Markdown. */
export function markdownOf(report: Report): string {
  const { name, hypothesis, state, arms, settings, verdict, control, metrics, calls, interference, next } =
    report
  const treatments = arms.map((arm) => arm.name).filter((arm) => arm !== control)
  return [
    `# Experiment ${name}`,
    ...(verdict === undefined ? ['It has not run.'] : [`**${verdict.result}**: ${verdict.sentence}.`]),
    ran(report),
    '## Hypothesis',
    hypothesis,
    '## Arms',
    table(
      ['arm', 'policy set', 'share', 'units'],
      arms.map(({ name, set, share, units }) => [
        name === control ? `${name} (control)` : name,
        set,
        `${Number((100 * share).toFixed(2))} %`,
        units,
      ]),
    ),
    settings.length === 0
      ? 'Their settings are the same.'
      : table(
          ['setting', ...arms.map((arm) => arm.name)],
          settings.map(({ setting, byArm }) => [setting, ...arms.map((arm) => byArm[arm.name] ?? '–')]),
        ),
    '## Metrics',
    'Intervals are those of 95 % for one look; the verdict goes by a sequence that holds at all looks together. p-values are adjusted for all metrics (Holm).',
    ...treatments.flatMap((treatment) => [
      ...(treatments.length > 1 ? [`### ${treatment} against ${control}`] : []),
      metricTable(metrics, control, treatment),
    ]),
    ...(state === 'not_started' ? [] : ['## Effect over time', lookTable(report)]),
    '## Faults',
    Object.keys(report.fates).length === 0
      ? 'No fault hit a call of the experiment.'
      : table(
          ['arm', 'masked', 'delayed', 'surfaced', 'escaped', 'not reached'],
          Object.entries(report.fates).map(([arm, fates]) => [
            arm,
            ...['masked', 'delayed', 'surfaced', 'escaped', 'not_reached'].map((fate) => fates[fate] ?? 0),
          ]),
        ),
    '## Assignment',
    `${calls.inArms} calls in arms, ${calls.fallback} of them assigned by the fallback; ${calls.notDrawn} not drawn, ${calls.excluded} named nothing to be assigned by, ${calls.dropped} came when there was no room for more units.`,
    ...(report.sampleRatioP === undefined
      ? []
      : [`Test whether units came to the arms as planned: p = ${report.sampleRatioP.toPrecision(2)}.`]),
    '## What arms share',
    interference.map((line) => `- ${line}`).join('\n'),
    '## What would change the verdict',
    next,
  ].join('\n\n')
}

function ran({ state, startedAt, endedAt, endedBecause, ranMs = 0 }: Report): string {
  if (state === 'not_started') return 'Not started.'
  const for_ = `for ${roundedDuration(ranMs)}`
  if (state === 'running') return `Running since ${startedAt}, ${for_}.`
  return `Ran from ${startedAt} to ${endedAt}, ${for_}: ${endedBecause}.`
}

function metricTable(metrics: readonly MetricReport[], control: string, treatment: string): string {
  return table(
    ['metric', control, treatment, 'difference', '95 % interval', 'p'],
    metrics.map(({ name, unit, decides, values, differences }) => {
      const { estimate, low, high, adjustedP } = differences[treatment]!
      return [
        decides ? `**${name}**` : name,
        valueInWords(values[control]!, unit),
        valueInWords(values[treatment]!, unit),
        differenceInWords(estimate, unit),
        `${differenceInWords(low, unit)} to ${differenceInWords(high, unit)}`,
        adjustedP === undefined || adjustedP === null ? '–' : adjustedP.toPrecision(2),
      ]
    }),
  )
}

/** Most lines of the effect over time. */
const SHOWN_LOOKS = 12

function lookTable({ looks, arms, metrics }: Report): string {
  const { unit } = metrics.find(({ decides }) => decides)!
  const step = Math.max(1, Math.ceil(looks.length / SHOWN_LOOKS))
  const shown = looks.filter((_, at) => at % step === 0 || at === looks.length - 1)
  if (shown.length === 0) return 'It was not looked at yet.'
  return table(
    ['after', ...arms.map(({ name }) => `${name} units`), 'difference', 'sequence'],
    shown.map(({ atMs, units, difference, low, high }) => [
      formatDuration(Math.round(atMs / 1_000) * 1_000),
      ...arms.map(({ name }) => units[name] ?? 0),
      differenceInWords(difference, unit),
      `${differenceInWords(low, unit)} to ${differenceInWords(high, unit)}`,
    ]),
  )
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) =>
    `| ${cells.map((cell) => String(cell).replaceAll('|', '\\|').replace(/\s+/g, ' ')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
