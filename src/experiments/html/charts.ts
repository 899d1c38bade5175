import { fates } from '../../mesh/injected.ts'
import type { Look } from '../experiments.ts'
import type { MetricReport, Report } from '../report.ts'
import {
  decisiveOf,
  decimalsFor,
  decimalsOf,
  differenceInWords,
  fateCounts,
  fateInWords,
  intervalInWords,
  isKnown,
  ofArm,
  type Told,
  treatmentsOf,
} from '../report-text.ts'
import { markup, type Markup } from './markup.ts'

/** The data of the page's chart script. Differences in the unit of the axis: shares as percentage points. */
export interface ChartData {
  /** Time of each look, in seconds since the start. */
  readonly at: readonly number[]
  readonly unit: MetricReport['unit']
  /** Range of the vertical axis of differences. */
  readonly range: readonly [low: number, high: number]
  readonly minimumEffect: number
  readonly minimumUnits: number
  /** The differences of each treatment by look; null: unknown. `color`: index of the arm. */
  readonly effects: readonly {
    readonly name: string
    readonly color: number
    /** Decimals shown. */
    readonly places: number
    readonly difference: readonly (number | null)[]
    readonly low: readonly (number | null)[]
    readonly high: readonly (number | null)[]
  }[]
  /** Finished units of each arm, by look. */
  readonly exposure: readonly {
    readonly name: string
    readonly color: number
    readonly units: readonly number[]
  }[]
}

export function chartData(report: Report): ChartData {
  const { looks, arms, minimumEffect, minimumUnits, control } = report
  const { unit } = decisiveOf(report)
  const scale = unit === 'points' ? 100 : 1
  const scaled = (value: Told) => (isKnown(value) ? Number((value * scale).toPrecision(5)) : null)
  const colored = arms.map(({ name }, color) => ({ name, color }))
  const effects = colored
    .filter(({ name }) => name !== control)
    .map(({ name, color }) => {
      const found = looks.map(({ byTreatment }) => ofArm(byTreatment, name))
      return {
        name,
        color,
        places: decimalsFor(found.findLast(isWhole) ?? { low: NaN, high: NaN }, unit),
        difference: found.map((look) => scaled(look?.difference)),
        low: found.map((look) => scaled(look?.low)),
        high: found.map((look) => scaled(look?.high)),
      }
    })
  return {
    at: looks.map(({ atMs }) => Math.round(atMs / 100) / 10),
    unit,
    range: rangeOf(effects, minimumEffect * scale),
    minimumEffect: minimumEffect * scale,
    minimumUnits,
    effects,
    exposure: colored.map(({ name, color }) => ({
      name,
      color,
      units: looks.map(({ units }) => ofArm(units, name) ?? 0),
    })),
  }
}

/** Axis length as a multiple of the late sequences' range. Early sequences are far wider and leave the chart. */
const ROOM = 1.25

/** Looks after this share of all looks are late. */
const LATE = 1 / 3

function rangeOf(effects: ChartData['effects'], minimumEffect: number): [number, number] {
  const late = effects.flatMap(({ difference, low, high }) =>
    [difference, low, high].flatMap((values) => values.filter(isKnown).slice(-lateCount(values))),
  )
  const low = Math.min(-1.5 * minimumEffect, ...late)
  const high = Math.max(1.5 * minimumEffect, ...late)
  const margin = ((ROOM - 1) * (high - low || 1)) / 2
  return [Number((low - margin).toPrecision(4)), Number((high + margin).toPrecision(4))]
}

const lateCount = (values: readonly (number | null)[]) =>
  Math.max(1, Math.ceil((1 - LATE) * values.filter(isKnown).length))

const isWhole = (look: Pick<Look, 'low' | 'high'> | undefined) => isKnown(look?.low) && isKnown(look?.high)

type Tone = 'better' | 'worse' | 'neither' | 'unknown'

const toneWords: Readonly<Record<Tone, string>> = {
  better: 'better',
  worse: 'worse',
  neither: 'neither',
  unknown: 'not known',
}

/** Returns a table of a treatment's metrics, each with an interval picture on its own scale, better to the right. */
export function forestOf(report: Report, treatment: string): Markup {
  return markup`<div class="scroll" tabindex="0" role="region" aria-label="Metrics of ${treatment} as intervals">
    <table class="forest">
      <thead>
        <tr>
          <th scope="col">metric</th>
          <th scope="col" class="axis">
            <span class="worse">← worse</span><span>no difference</span><span class="better">better →</span>
          </th>
          <th scope="col">by interval</th>
          <th scope="col" class="number">difference</th>
        </tr>
      </thead>
      <tbody>
        ${report.metrics.map((metric) => forestRow(metric, treatment, report))}
      </tbody>
    </table>
  </div>`
}

function forestRow(metric: MetricReport, treatment: string, { metrics, minimumEffect }: Report): Markup {
  const { name, unit, decides, differences } = metric
  const difference = differences[treatment]!
  const tone = toneOf(metric, treatment)
  const places = decimalsOf(metric, treatment, metrics)
  return markup`<tr class="${tone}${decides ? ' decides' : ''}">
    <th scope="row">${name}${decides ? markup` <span class="tag">decides</span>` : undefined}</th>
    <td class="picture">${intervalPicture(metric, treatment, decides ? minimumEffect : 0)}</td>
    <td class="tone">${toneWords[tone]}</td>
    <td class="number" title="95 % interval: ${intervalInWords(difference, unit, places)}">
      ${differenceInWords(difference.estimate, unit, places)}
    </td>
  </tr>`
}

/** Returns `better` or `worse` when the whole interval is on this side of 0; `neither` when the interval contains 0. */
function toneOf({ better, differences }: MetricReport, treatment: string): Tone {
  const { low, high } = differences[treatment] as { readonly low: Told; readonly high: Told }
  if (!isKnown(low) || !isKnown(high)) return 'unknown'
  if (low <= 0 && high >= 0) return 'neither'
  return low > 0 === (better === 'higher') ? 'better' : 'worse'
}

/** Half the width of a picture without its margin, in percent. */
const HALF = 46

function intervalPicture(
  { better, differences }: MetricReport,
  treatment: string,
  minimumEffect: number,
): Markup {
  const ends = Object.values(differences).flatMap(({ low, high }) => [low, high] as Told[])
  const extent = Math.max(minimumEffect, ...ends.filter(isKnown).map(Math.abs)) || 1
  const side = better === 'higher' ? 1 : -1
  const at = (value: number) => `${(50 + (side * HALF * value) / extent).toFixed(2)}%`
  const { estimate, low, high } = differences[treatment] as Readonly<
    Record<'estimate' | 'low' | 'high', Told>
  >
  const width = `${((2 * HALF * minimumEffect) / extent).toFixed(2)}%`
  return markup`<svg width="100%" height="24" aria-hidden="true" focusable="false">
    ${minimumEffect > 0 ? markup`<rect class="minimum-effect" x="${at(-side * minimumEffect)}" width="${width}" y="0" height="24" />` : undefined}
    <line class="zero" x1="50%" x2="50%" y1="0" y2="24" />
    ${
      isKnown(estimate) && isKnown(low) && isKnown(high)
        ? markup`<line class="range" x1="${at(low)}" x2="${at(high)}" y1="12" y2="12" />
            <line class="end" x1="${at(low)}" x2="${at(low)}" y1="8" y2="16" />
            <line class="end" x1="${at(high)}" x2="${at(high)}" y1="8" y2="16" />
            <circle class="estimate" cx="${at(estimate)}" cy="12" r="4.5" />`
        : undefined
    }
  </svg>`
}

/** Width of the narrowest segment with room for a number, in percent of the bar. */
const ROOM_FOR_NUMBER = 7

/** Returns a bar per arm: its faults by fate, with counts. */
export function barsOf(report: Report): Markup {
  const arms = report.arms.map(({ name }) => ({ name, counts: fateCounts(report, name) }))
  return markup`<div class="bars">
    <ul class="key" aria-hidden="true">
      ${fates.map((fate) => markup`<li><i class="${fate}"></i>${fateInWords(fate)}</li>`)}
    </ul>
    ${arms.map(
      ({ name, counts }) =>
        markup`<div class="bar">
          <span class="name">${name}</span>${barOf(name, counts)}<span class="number">${sum(counts)}</span>
        </div>`,
    )}
  </div>`
}

function barOf(arm: string, counts: readonly number[]): Markup {
  const all = sum(counts)
  const words = fates.map((fate, at) => `${fateInWords(fate)} ${counts[at]}`).join(', ')
  const segments = fates.map((fate, at) => {
    const percent = all === 0 ? 0 : (100 * counts[at]!) / all
    const start = all === 0 ? 0 : (100 * sum(counts.slice(0, at))) / all
    return { fate, count: counts[at]!, percent, start }
  })
  return markup`<svg role="img" width="100%" height="28" aria-label="Faults of ${arm}: ${words}">
    <title>${arm}: ${words}</title>
    ${segments
      .filter(({ count }) => count > 0)
      .map(
        ({ fate, count, percent, start }) =>
          markup`<rect class="${fate}" x="${start.toFixed(2)}%" width="${percent.toFixed(2)}%" height="28" />${
            percent < ROOM_FOR_NUMBER
              ? undefined
              : markup`<text class="on ${fate}" x="${(start + percent / 2).toFixed(2)}%" y="19">${count}</text>`
          }`,
      )}
  </svg>`
}

const sum = (counts: readonly number[]) => counts.reduce((total, count) => total + count, 0)

/** Returns true when the looks suffice for charts: a line needs two looks. */
export const hasCharts = (report: Report): boolean => report.looks.length > 1

/** Returns the charts in words, for screen readers. */
export function chartLabels(report: Report): { readonly effect: string; readonly exposure: string } {
  const { looks, arms, metric } = report
  const { unit } = decisiveOf(report)
  const last = looks.at(-1)
  const effects = treatmentsOf(report).map((arm) => {
    const found = last && ofArm(last.byTreatment, arm)
    if (found === undefined || !isKnown(found.difference)) return `${arm} not known`
    const places = decimalsFor(found, unit)
    return `${arm} ${differenceInWords(found.difference, unit, places)}, sequence ${intervalInWords(found, unit, places)}`
  })
  const units = arms.map(({ name }) => `${name} ${(last && ofArm(last.units, name)) ?? 0}`)
  return {
    effect: `Line chart of the difference of ${metric} over time. At the last look: ${effects.join('; ')}.`,
    exposure: `Line chart of the units of each arm over time. At the last look: ${units.join(', ')}.`,
  }
}
