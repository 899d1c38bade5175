import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { charts, drawn } from './chart.ts'
import { provenance, type CellResult, type Results } from './results.ts'
import { inMarkdown, leftOutLine, paceNote, ratiosOver, tableOf } from './tables.ts'

/** Begin marker of a run's part in a page. */
const beginOf = (part: string) => `<!-- bench:full ${part} begins -->`
const endOf = (part: string) => `<!-- bench:full ${part} ends -->`

/** Puts a run's parts into a page, and its pictures into the folder beside the page, named like the page. */
export function writePage(file: string, results: Results): void {
  const text = filled(readFileSync(file, 'utf8'), parts(results))
  const folder = file.replace(/\.md$/, '')
  mkdirSync(folder, { recursive: true })
  for (const [name, chart] of Object.entries(charts(results)))
    writeFileSync(join(folder, `${name}.svg`), drawn(chart))
  writeFileSync(file, text)
}

/** Returns the page with new texts in its existing places; all other text stays. */
export function filled(page: string, texts: Readonly<Record<string, string>>): string {
  return Object.entries(texts).reduce((page, [part, text]) => {
    const [from, to] = [page.indexOf(beginOf(part)), page.indexOf(endOf(part))]
    if (from < 0 || to < from) return page
    return `${page.slice(0, from)}${beginOf(part)}\n\n${text}\n\n${page.slice(to)}`
  }, page)
}

/** Throws before the measurement if the page does not exist or has no place for a result. */
export function checkPage(file: string): void {
  if (!file.endsWith('.md')) throw new Error('--page: expected a page in Markdown')
  if (!readFileSync(file, 'utf8').includes(beginOf('base')))
    throw new Error(`--page: ${file} has no line ${beginOf('base')}`)
}

/** Returns the Markdown that a run writes into a page, by place. Places without measurements are absent. */
export function parts(results: Results): Readonly<Record<string, string>> {
  const cellNamed = (name: string) => results.cells.filter((cell) => cell.name === name)
  const loads = results.cells.filter(({ name }) => name !== 'policies')
  const others = loads.filter(({ name }) => name !== 'base')
  const isLook = results.command.includes('--quick')
  const source = `Measured on ${provenance(results, (command) => `\`${command}\``)}.${isLook ? ' A quick look: not figures to quote.' : ''}`
  const all = {
    base: cellNamed('base').flatMap((cell) => [titled(cell), paceNote(cell), ...table(cell)]),
    loads:
      others.length === 0
        ? []
        : [
            'CPU of a call over that of the byte proxy, at each load:',
            inMarkdown(ratiosOver(loads)),
            ...others.flatMap((cell) => [`### ${cell.title}`, paceNote(cell), ...table(cell)]),
          ],
    policies: cellNamed('policies').flatMap((cell) => [paceNote(cell), ...table(cell)]),
    'left-out': [results.leftOut.map((row) => `- ${leftOutLine(row)}`).join('\n') || 'Nothing.'],
  }
  return Object.fromEntries(
    Object.entries(all)
      .filter(([, blocks]) => blocks.length > 0)
      .map(([name, blocks]) => [name, [source, ...blocks].join('\n\n')]),
  )
}

const titled = ({ title }: CellResult) => `${title}.`

function table(cell: CellResult): string[] {
  const notes = cell.rows.flatMap(({ title, note }) => (note === undefined ? [] : [`- ${title}: ${note}.`]))
  return [inMarkdown(tableOf(cell)), ...(notes.length === 0 ? [] : [notes.join('\n')])]
}
