import { studyScript } from '../../console/study-charts.ts'
import { markup, type Markup } from '../../experiments/html/markup.ts'
import { blockMarkup, pageOf, unbroken } from '../../experiments/html/page.ts'
import { inWords } from './figures.ts'
import type { StudySeries, StudyTable } from './study.ts'
import { cellText, type Told } from './text.ts'

/** A self-contained HTML page. Without scripts, only the lines over time are missing. */
export function htmlOf({ name, about, model, tables, series, seen }: Told): string {
  return pageOf({
    title: `Study ${name}: ${about}`,
    charts: series.length === 0 ? undefined : { data: series, script: studyScript },
    body: markup`<h1>Study <b>${name}</b></h1>
<div class="verdict neither">
<p class="sentence">${about}</p>
<p class="note">${unbroken(model)}</p>
</div>
<section id="seen">
<h2>Conclusions</h2>
${blockMarkup({ list: seen.map(unbroken) }, 'Conclusions')}
</section>
${tables.map(tableMarkup)}
${series.map(chartMarkup)}`,
  })
}

function tableMarkup(table: StudyTable): Markup {
  const { title, columns, rows } = table
  // The first columns describe a row; the later columns are numbers.
  const numbers = columns.findIndex(({ unit }) => unit !== undefined)
  const head = columns.map(({ label }) => label)
  const cells = rows.map((row) => columns.map((column) => cellText(column, row)))
  return markup`<section>
<h2>${title}</h2>
${table.bars.map((key) => barsMarkup(table, key))}
${blockMarkup({ table: { head, rows: cells, numbers } }, title)}
</section>
`
}

/**
 * Returns the bars of a column, one per row. Bar lengths are relative to the longest bar in all pictures of the table.
 */
function barsMarkup({ columns, rows, bars }: StudyTable, key: string): Markup {
  const column = columns.find((one) => one.key === key)!
  const named = columns.slice(
    0,
    columns.findIndex(({ unit }, at) => at > 0 && unit !== undefined),
  )
  const values = bars.flatMap((key) => rows.map((row) => row[key]))
  const most = Math.max(...values.map((value) => (typeof value === 'number' ? value : 0))) || 1
  return markup`<h3>${column.label}</h3>
<div class="bars">
${rows.map((row) => {
  const value = row[key]
  const percent = typeof value === 'number' ? ((100 * Math.max(0, value)) / most).toFixed(2) : '0'
  const label = named.map((one) => cellText(one, row)).join(', ')
  return markup`<div class="bar"><span class="name">${label}</span><svg role="img" width="100%" height="18" aria-label="${label}: ${cellText(column, row)}"><rect class="delayed" width="${percent}%" height="18" /></svg><span class="number">${cellText(column, row)}</span></div>
`
})}</div>`
}

function chartMarkup({ title, lines }: StudySeries, at: number): Markup {
  const tops = lines.map(({ name, values }) => `${name} up to ${inWords(Math.max(...values), 'count')}`)
  return markup`<section>
<h2>${title}</h2>
<div class="chart" id="chart-${at}" role="img" aria-label="${title}: ${tops.join(', ')}."></div>
</section>
`
}
