import { provenance, type CellResult, type Results } from './results.ts'
import { inMarkdown, leftOutLine, paceNote, ratiosOver, tableOf } from './tables.ts'

/** What a run writes into a page, in Markdown, by the names of the places for it. One for which nothing was measured is not there. */
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

/** A table, and below it what there is to know of its rows. */
function table(cell: CellResult): string[] {
  const notes = cell.rows.flatMap(({ title, note }) => (note === undefined ? [] : [`- ${title}: ${note}.`]))
  return [inMarkdown(tableOf(cell)), ...(notes.length === 0 ? [] : [notes.join('\n')])]
}
