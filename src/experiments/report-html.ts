import { barsOf, chartData, chartLabels, forestOf, hasCharts } from './html/charts.ts'
import { type Markup, markup } from './html/markup.ts'
import { blockMarkup, pageOf, unbroken } from './html/page.ts'
import { script } from '../console/comparison-charts.ts'
import type { Block } from './blocks.ts'
import {
  othersInWords,
  ranInWords,
  type Section,
  sectionsOf,
  treatmentsOf,
  verdictInWords,
} from './report-text.ts'
import type { Report } from './report.ts'

/**
 * Returns the report of an experiment as an HTML page without external resources: `markdownOf` with charts. Without
 * scripts, tables replace the charts. All text from configs and agents is escaped.
 */
export function htmlOf(report: Report): string {
  const { label, sentence } = verdictInWords(report)
  const ran = ranInWords(report)
  return pageOf({
    title: `Experiment ${report.name}: ${label}`,
    charts: hasCharts(report) ? { data: chartData(report), script } : undefined,
    body: markup`<h1>Experiment <b>${report.name}</b></h1>
<div class="verdict ${toneOf(report)}">
<span class="badge">${label}</span>
<p class="sentence">${unbroken(sentence)}</p>
${othersInWords(report).map((line) => markup`<p>${unbroken(line)}</p>`)}
${ran === undefined ? undefined : markup`<p class="note">${ran}</p>`}
</div>
${noScript(report)}
${sectionsOf(report).map((section) => sectionMarkup(report, section))}`,
  })
}

const noScript = (report: Report) =>
  hasCharts(report)
    ? markup`<noscript><p class="note">The charts need JavaScript; the tables say the same.</p></noscript>`
    : undefined

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

/** Returns the blocks of a section, each table after its chart, if any. */
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

const isTable = (block: Block) => typeof block === 'object' && 'table' in block

const canvas = (report: Report, name: 'effect' | 'exposure') =>
  markup`<div class="chart" id="${name}-chart" role="img" aria-label="${chartLabels(report)[name]}"></div>`

/** Returns a note on the shades of a chart; the script shows the note with the chart. */
const keyOf = (name: 'effect' | 'exposure') =>
  name === 'effect'
    ? [markup`<p class="note" hidden>Coloured bands are sequences; grey differences do not matter.</p>`]
    : []

/** Returns a block that a reader can unfold. Without scripts the block is open; the script of the page closes it. */
const folded = (content: Markup) =>
  markup`<details open><summary>The same as a table</summary>${content}</details>`
