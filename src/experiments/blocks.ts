/** The blocks of reports, for any output format. */

/** A cell of a table. `bold`: text that stands out. */
export type Cell = string | number | { readonly bold: string }

/** Rows below a head; the columns from `numbers` on are numbers. */
export interface Table {
  readonly head: readonly string[]
  readonly rows: readonly (readonly Cell[])[]
  readonly numbers: number
}

/** A paragraph, a list, a heading within the section, or a table. */
export type Block =
  string | { readonly list: readonly string[] } | { readonly heading: string } | { readonly table: Table }

/** A block as Markdown. */
export function markdownBlock(block: Block): string {
  if (typeof block === 'string') return markdownLine(block)
  if ('list' in block) return block.list.map((line) => `- ${markdownLine(line)}`).join('\n')
  if ('heading' in block) return `### ${markdownLine(block.heading)}`
  const { head, rows, numbers } = block.table
  const line = (cells: readonly Cell[]) => `| ${cells.map(markdownCell).join(' | ')} |`
  return [line(head), line(head.map((_, at) => (at >= numbers ? '--:' : '---'))), ...rows.map(line)].join(
    '\n',
  )
}

/** A text as one line of Markdown that is read as it was written: whoever gave a part of it can forge nothing around it. */
export const markdownLine = (text: string): string =>
  text
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .replace(/[\\`*~[\]]|<(?=[a-z/!?])|&(?=#?\w+;)|(?<!\w)_|_(?!\w)/gi, '\\$&')
    // Escapes the start of a line that would begin a heading, a list, a quotation or a rule.
    .replace(/^(?:#(?=#*(?:\s|$))|[-+>=])/, '\\$&')
    .replace(/^(\d+)(?=[.)](?:\s|$))/, '$1\\')

function markdownCell(cell: Cell): string {
  if (typeof cell === 'object') return `**${markdownCell(cell.bold)}**`
  // Names of settings and arms are never markup.
  return String(cell)
    .replace(/\\+(?=[|<&])/g, '$&$&')
    .replace(/\||<(?=[a-z/!?])|&(?=#?\w+;)/gi, '\\$&')
    .replace(/\s+/g, ' ')
}
