import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { drawn } from './chart.ts'
import { charts } from './charts.ts'
import { parts } from './parts.ts'
import type { Results } from './results.ts'

/** Where a part of a run stands in a page: between these lines. */
const beginOf = (part: string) => `<!-- bench:full ${part} begins -->`
const endOf = (part: string) => `<!-- bench:full ${part} ends -->`

/** Puts the parts of a run into their places in a page, and its pictures into the folder beside it that has the page's name. */
export function writePage(file: string, results: Results): void {
  const text = filled(readFileSync(file, 'utf8'), parts(results))
  const folder = file.replace(/\.md$/, '')
  mkdirSync(folder, { recursive: true })
  for (const [name, chart] of Object.entries(charts(results)))
    writeFileSync(join(folder, `${name}.svg`), drawn(chart))
  writeFileSync(file, text)
}

/** The page with other texts in those places that it has; the others stay as they are. */
export function filled(page: string, texts: Readonly<Record<string, string>>): string {
  return Object.entries(texts).reduce((page, [part, text]) => {
    const [from, to] = [page.indexOf(beginOf(part)), page.indexOf(endOf(part))]
    if (from < 0 || to < from) return page
    return `${page.slice(0, from)}${beginOf(part)}\n\n${text}\n\n${page.slice(to)}`
  }, page)
}

/** Throws, before anything is measured, where there is no such page, or nothing would be put into it. */
export function checkPage(file: string): void {
  if (!file.endsWith('.md')) throw new Error('--page: expected a page in Markdown')
  if (!readFileSync(file, 'utf8').includes(beginOf('base')))
    throw new Error(`--page: ${file} has no line ${beginOf('base')}`)
}
