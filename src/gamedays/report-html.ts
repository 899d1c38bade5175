import { gameDayScript } from '../console/gameday-charts.ts'
import type { DocumentKind } from '../evidence/signed-document.ts'
import { type Markup, markup } from '../experiments/html/markup.ts'
import { gameDayReport, type GameDayReport } from './report-shape.ts'
import { countsInWords, sectionsOf, titleOf } from './report-sections.ts'

/** The data of the page's charts: seconds since the begin of the GameDay, and a line for each experiment. */
interface ChartData {
  readonly at: readonly number[]
  /** Begins of runs, and the end of the GameDay. */
  readonly marks: readonly { readonly at: number; readonly text: string }[]
  readonly pauses: readonly { readonly from: number; readonly until: number }[]
  /** Null: no calls, or another experiment was under way. `color`: index of the colour of an arm. */
  readonly lines: readonly {
    readonly name: string
    readonly color: number
    /** In percent. */
    readonly errors: readonly (number | null)[]
    readonly p95: readonly (number | null)[]
  }[]
}

/** Colours of the page's style. */
const COLOURS = 8

export function chartDataOf({ losses, gameDay, timeline, experiments }: GameDayReport): ChartData {
  const seconds = (ms: number) => Math.round(ms / 100) / 10
  const began = Date.parse(gameDay.startedAt)
  const since = (moment: string) => seconds(Date.parse(moment) - began)
  const rows = losses
    .flatMap(({ experiment, rows }) => [
      ...rows.map(([at, calls, failed, p95]) => ({ experiment, at, calls, failed, p95 })),
      // The line ends with the run, also when the same experiment begins anew.
      { experiment: '', at: (rows.at(-1)?.[0] ?? 0) + 1, calls: 0, failed: 0, p95: null },
    ])
    .sort((a, b) => a.at - b.at)
  const names = experiments
    .map(({ name }) => name)
    .filter((name) => rows.some((row) => row.experiment === name))
  return {
    at: rows.map(({ at }) => seconds(at)),
    marks: [
      ...losses.map(({ experiment, rows }) => ({ at: seconds(rows[0]?.[0] ?? 0), text: experiment })),
      ...(gameDay.endedAt === null ? [] : [{ at: since(gameDay.endedAt), text: gameDay.state }]),
    ],
    pauses: pausesIn(timeline, gameDay).map(({ from, until }) => ({
      from: since(from),
      until: since(until),
    })),
    lines: names.map((name) => ({
      name,
      color: experiments.findIndex((one) => one.name === name) % COLOURS,
      errors: rows.map(({ experiment, calls, failed }) =>
        experiment !== name || calls === 0 ? null : Math.round((1_000 * failed) / calls) / 10,
      ),
      p95: rows.map(({ experiment, p95 }) => (experiment === name ? p95 : null)),
    })),
  }
}

/** Returns the pauses; a pause lasts until the next event that resumes or ends the GameDay. */
function pausesIn(timeline: GameDayReport['timeline'], { endedAt }: GameDayReport['gameDay']) {
  return timeline.flatMap(({ kind, at }, index) => {
    if (kind !== 'pause') return []
    const resumed = timeline.slice(index).find((one) => one.kind === 'event' && one.what === 'resumed')
    return [{ from: at, until: resumed?.at ?? endedAt ?? timeline.at(-1)!.at }]
  })
}

const hasCharts = ({ losses }: GameDayReport) => losses.some(({ rows }) => rows.length > 1)

function headOf(report: GameDayReport): Markup {
  const { gameDay } = report
  return markup`<h1>GameDay <b>${gameDay.title}</b></h1>
<div class="verdict neither">
<span class="badge">${gameDay.state}</span>
<p class="sentence">${countsInWords(report)}.</p>
</div>
${hasCharts(report) ? charts : undefined}`
}

const charts = markup`<section><h2>Losses over time</h2>
<p class="note">The calls that faults may hit, while a stage was under way; otherwise all calls. Grey: pauses.</p>
<noscript><p class="note">The charts need JavaScript; the tables show the results.</p></noscript>
<div class="chart" id="errors-chart" role="img" aria-label="Line chart of the share of failed calls over the GameDay, by experiment"></div>
<div class="chart" id="p95-chart" role="img" aria-label="Line chart of the 95th percentile of the latency over the GameDay, by experiment"></div>
</section>`

/** The report on a GameDay as a document that a person may sign. */
export const gameDayDocument: DocumentKind<GameDayReport> = {
  kind: 'gameday',
  schema: gameDayReport,
  titleOf,
  sectionsOf,
  headOf,
  chartsOf: (report) =>
    hasCharts(report) ? { data: chartDataOf(report), script: gameDayScript } : undefined,
}
