/** The blocks of reports, for any output format. */

export type Cell = string | number | { readonly bold: string }

/** Columns from index `numbers` on hold numbers. */
export interface Table {
  readonly head: readonly string[]
  readonly rows: readonly (readonly Cell[])[]
  readonly numbers: number
}

/** A string is a paragraph; a `heading` is a heading inside of a section. */
export type Block =
  string | { readonly list: readonly string[] } | { readonly heading: string } | { readonly table: Table }

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

/** Escapes a text for one line of Markdown, so that names from configs and agents cannot forge markup. */
export const markdownLine = (text: string): string =>
  text
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .replace(/[\\`*~[\]]|<(?=[a-z/!?])|&(?=#?\w+;)|(?<!\w)_|_(?!\w)/gi, '\\$&')
    // The start of a line could begin a heading, a list, a quotation or a rule.
    .replace(/^(?:#(?=#*(?:\s|$))|[-+>=])/, '\\$&')
    .replace(/^(\d+)(?=[.)](?:\s|$))/, '$1\\')

function markdownCell(cell: Cell): string {
  if (typeof cell === 'object') return `**${markdownCell(cell.bold)}**`
  // Names of settings and arms are never markup, but texts of people may be: a link, an image or code.
  return String(cell)
    .replace(/\\+(?=[|<&[`])/g, '$&$&')
    .replace(/[|[`]|<(?=[a-z/!?])|&(?=#?\w+;)/gi, '\\$&')
    .replace(/\s+/g, ' ')
}
