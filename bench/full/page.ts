import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { drawn } from './chart.ts'
import { charts } from './charts.ts'
import type { Results } from './results.ts'
import { markdown } from './tables.ts'

const BEGIN = '<!-- bench:full begins; written by npm run bench:full -- --page FILE -->'
const END = '<!-- bench:full ends -->'

/** Puts the tables of a run between the marks of a page, and its pictures into the folder beside it that has the page's name. */
export function writePage(file: string, results: Results): void {
  const folder = file.replace(/\.md$/, '')
  const text = between(readFileSync(file, 'utf8'), markdown(results))
  mkdirSync(folder, { recursive: true })
  for (const [name, chart] of Object.entries(charts(results)))
    writeFileSync(join(folder, `${name}.svg`), drawn(chart))
  writeFileSync(file, text)
}

/** The page with another text between its marks; throws where there are none. */
export function between(page: string, text: string): string {
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`the page has no lines "${BEGIN}" and "${END}"`)
  return `${page.slice(0, from + BEGIN.length)}\n\n${text}\n\n${page.slice(to)}`
}

/** Throws, before anything is measured, where there is no such page. */
export function checkPage(file: string): void {
  if (!file.endsWith('.md')) throw new Error('--page: expected a page in Markdown')
  between(readFileSync(file, 'utf8'), '')
}
