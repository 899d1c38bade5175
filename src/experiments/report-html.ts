import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { barsOf, chartData, chartLabels, forestOf, hasCharts } from './html/charts.ts'
import { jsonMarkup, type Markup, markup, trusted } from './html/markup.ts'
import { script } from './html/script.ts'
import { style } from './html/style.ts'
import {
  type Block,
  type Cell,
  othersInWords,
  ranInWords,
  type Section,
  sectionsOf,
  type Table,
  treatmentsOf,
  verdictInWords,
} from './report-text.ts'
import type { Report } from './report.ts'

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

/**
 * The report of an experiment as one page of HTML that loads nothing: what `markdownOf` says, with charts. Without
 * scripts its tables say what the charts would. All that comes from configs and agents is escaped.
 */
export function htmlOf(report: Report): string {
  const { label, sentence } = verdictInWords(report)
  const ran = ranInWords(report)
  const { text } = markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Experiment ${report.name}: ${label}</title>
<style>${trusted(hasCharts(report) ? ofPlot('dist/uPlot.min.css') : '')}
${trusted(style)}</style>
</head>
<body>
<main>
<h1>Experiment <b>${report.name}</b></h1>
<div class="verdict ${toneOf(report)}">
<span class="badge">${label}</span>
<p class="sentence">${unbroken(sentence)}</p>
${othersInWords(report).map((line) => markup`<p>${unbroken(line)}</p>`)}
${ran === undefined ? undefined : markup`<p class="note">${ran}</p>`}
</div>
${noScript(report)}
${sectionsOf(report).map((section) => sectionMarkup(report, section))}
</main>
${scripts(report)}
</body>
</html>
`
  return text
}

/** A file of the chart library as it is installed. */
const ofPlot = (file: string): string =>
  readFileSync(createRequire(import.meta.url).resolve(`uplot/${file}`), 'utf8').trim()

const noScript = (report: Report) =>
  hasCharts(report)
    ? markup`<noscript><p class="note">The charts need JavaScript; the tables say the same.</p></noscript>`
    : undefined

function scripts(report: Report): Markup | undefined {
  if (!hasCharts(report)) return undefined
  return markup`<script type="application/json" id="chart-data">${jsonMarkup(chartData(report))}</script>
<script>
/*
${trusted(ofPlot('LICENSE'))}
*/
${trusted(ofPlot('dist/uPlot.iife.min.js'))}
</script>
<script>
${trusted(script)}
</script>`
}

function toneOf({ state, verdict }: Report): string {
  switch (verdict?.result) {
    case 'better':
    case 'worse':
      return verdict.result
    case 'no_difference_found':
    case undefined:
      return 'neither'
    case 'inconclusive':
      return 'open'
    case 'invalid':
      return state === 'running' ? 'open' : 'worse'
  }
}

function sectionMarkup(report: Report, { name, title, blocks }: Section): Markup {
  return markup`<section id="${name}">
<h2>${title}</h2>
${contentOf(report, { name, title, blocks })}
</section>
`
}

/** What stands in a section: its blocks, and before its tables the pictures of what they say. */
function contentOf(report: Report, { name, title, blocks }: Section): Markup[] {
  const treatments = treatmentsOf(report).values()
  return blocks.flatMap((block) => {
    const plain = blockMarkup(block, title)
    if (!isTable(block)) return plain
    switch (name) {
      case 'effect':
      case 'exposure':
        return hasCharts(report) ? [canvas(report, name), ...keyOf(name), folded(plain)] : plain
      case 'metrics':
        return [forestOf(report, treatments.next().value!), plain]
      case 'faults':
        return [barsOf(report), plain]
      default:
        return plain
    }
  })
}

/** Numbers stay with their units, and intervals in one line. */
const unbroken = (text: string) =>
  text
    .replace(/(?<=\d) (?=%|ms\b|points?\b)|(?<=\bp [=<]) /g, '\u00a0')
    .replace(/(?<=\d)–(?=\d)/g, '\u2060–\u2060')

const isTable = (block: Block) => typeof block === 'object' && 'table' in block

/** Where the script draws. */
const canvas = (report: Report, name: 'effect' | 'exposure') =>
  markup`<div class="chart" id="${name}-chart" role="img" aria-label="${chartLabels(report)[name]}"></div>`

/** What its shades are; the script shows it with the chart. */
const keyOf = (name: 'effect' | 'exposure') =>
  name === 'effect'
    ? [markup`<p class="note" hidden>Coloured bands are sequences; the grey one is what does not matter.</p>`]
    : []

/** Open for who has no scripts, which close it. */
const folded = (content: Markup) =>
  markup`<details open><summary>The same as a table</summary>${content}</details>`

function blockMarkup(block: Block, title: string): Markup {
  if (typeof block === 'string') return markup`<p>${unbroken(block)}</p>`
  if ('list' in block) return markup`<ul>${block.list.map((line) => markup`<li>${line}</li>`)}</ul>`
  if ('heading' in block) return markup`<h3>${block.heading}</h3>`
  return tableMarkup(block.table, title)
}

function tableMarkup({ head, rows, numbers }: Table, title: string): Markup {
  const tone = (at: number) => (at >= numbers ? markup` class="number"` : undefined)
  const cell = (content: Cell) =>
    typeof content === 'object' ? markup`<b>${content.bold}</b>` : markup`${content}`
  return markup`<div class="scroll" tabindex="0" role="region" aria-label="${title}">
<table>
<thead><tr>${head.map((name, at) => markup`<th scope="col"${tone(at)}>${name}</th>`)}</tr></thead>
<tbody>
${rows.map(
  ([first = '', ...rest]) =>
    markup`<tr><th scope="row"${tone(0)}>${cell(first)}</th>${rest.map((one, at) => markup`<td${tone(at + 1)}>${cell(one)}</td>`)}</tr>
`,
)}</tbody>
</table>
</div>`
}
