import { type Markup, markup } from '../html/markup.ts'
import { blockMarkup, pageOf } from '../html/page.ts'
import { runScript } from '../../console/run-charts.ts'
import type { RunRecord } from './record.ts'
import { runSections } from './report.ts'
import type { State } from './spec.ts'

const tones: Readonly<Record<State, string>> = {
  completed: 'better',
  deviated: 'worse',
  aborted: 'worse',
  failed: 'worse',
  invalid: 'worse',
  inconclusive: 'open',
  pending_approval: 'open',
  running: 'open',
}

/** The lines of a chart, in the order of the page's colours. `all`: calls in no arm. */
const arms = ['all', 'control', 'treatment'] as const

/** Chart data by second; null: no calls. */
interface ChartData {
  readonly at: readonly number[]
  /** Starts of stages in seconds, with shares in percent. */
  readonly marks: readonly { readonly at: number; readonly text: string }[]
  readonly arms: readonly {
    readonly name: string
    readonly p95: readonly (number | null)[]
    readonly errors: readonly (number | null)[]
  }[]
}

function chartData({ samples, stages, recovery, rollback }: RunRecord): ChartData {
  const seconds = (ms: number) => Math.round(ms / 100) / 10
  const marks = stages.map(({ beganAtMs, share }) => ({
    at: seconds(beganAtMs),
    text: `${Math.round(share * 100)} %`,
  }))
  if (recovery !== undefined && rollback?.atMs !== undefined)
    marks.push({ at: seconds(rollback.atMs), text: 'rolled back' })
  return {
    at: samples.map(({ atMs }) => seconds(atMs)),
    marks,
    arms: arms.map((name) => {
      const rows = samples.map((sample) => (Object.hasOwn(sample.arms, name) ? sample.arms[name] : undefined))
      return {
        name: name === 'all' ? 'in no arm' : name,
        p95: rows.map((row) => row?.p95 ?? null),
        errors: rows.map((row) =>
          row === undefined || row.calls === 0 ? null : Math.round((1_000 * row.failed) / row.calls) / 10,
        ),
      }
    }),
  }
}

/** Returns true when the samples suffice for charts: a line needs two points. */
const hasCharts = ({ samples }: RunRecord) => samples.length > 1

/** Returns the report of a run as an HTML page without external resources. Text from specs and servers is escaped. */
export function runHtmlOf(run: RunRecord): string {
  const { name, spec, state } = run
  return pageOf({
    title: `Guarded experiment ${name}: ${state}`,
    charts: hasCharts(run) ? { data: chartData(run), script: runScript } : undefined,
    body: markup`<h1>Guarded experiment <b>${name}</b></h1>
<div class="verdict ${tones[state]}">
<span class="badge">${state.replaceAll('_', ' ')}</span>
<p class="sentence">${`${run.reason[0]?.toUpperCase() ?? ''}${run.reason.slice(1)}.`}</p>
${spec.title === undefined ? undefined : markup`<p>${spec.title}</p>`}
</div>
${charts(run)}
${runSections(run).map(
  ({ title, blocks }) => markup`<section><h2>${title}</h2>
${blocks.map((block) => blockMarkup(block, title))}
</section>
`,
)}`,
  })
}

function charts(run: RunRecord): Markup | undefined {
  if (!hasCharts(run)) return undefined
  return markup`<section><h2>Calls over time</h2>
<noscript><p class="note">The charts need JavaScript; the tables show the results of the stages.</p></noscript>
<div class="chart" id="p95-chart" role="img" aria-label="Line chart of the 95th percentile of the latency of each arm over time"></div>
<div class="chart" id="errors-chart" role="img" aria-label="Line chart of the share of failed calls of each arm over time"></div>
</section>`
}
