import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Block, Cell, Table } from '../blocks.ts'
import { jsonMarkup, type Markup, markup, trusted } from './markup.ts'
import { style } from './style.ts'

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

export interface Page {
  readonly title: string
  /** The chart script and its data; undefined without charts. */
  readonly charts: { readonly data: unknown; readonly script: string } | undefined
  readonly body: Markup
}

/** Returns a report as an HTML page without external resources. */
export function pageOf({ title, charts, body }: Page): string {
  return markup`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${trusted(charts === undefined ? '' : ofPlot('dist/uPlot.min.css'))}
${trusted(style)}</style>
</head>
<body>
<main>
${body}
</main>
${charts && scripts(charts)}
</body>
</html>
`.text
}

const scripts = ({ data, script }: NonNullable<Page['charts']>) =>
  markup`<script type="application/json" id="chart-data">${jsonMarkup(data)}</script>
<script>
/*
${trusted(ofPlot('LICENSE'))}
*/
${trusted(ofPlot('dist/uPlot.iife.min.js'))}
</script>
<script>
${trusted(script)}
</script>`

const ofPlot = (file: string): string =>
  readFileSync(createRequire(import.meta.url).resolve(`uplot/${file}`), 'utf8').trim()

/** Returns a text that does not break between a number and its unit, or inside of an interval. */
export const unbroken = (text: string) =>
  text
    .replace(/(?<=\d) (?=%|ms\b|points?\b)|(?<=\bp [=<]) /g, '\u00a0')
    .replace(/(?<=\d)–(?=\d)/g, '\u2060–\u2060')

/** Returns a block of a report; `title` names its tables for screen readers. */
export function blockMarkup(block: Block, title: string): Markup {
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
