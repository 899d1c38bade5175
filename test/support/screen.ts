/** The lines of a terminal's window after a text: understands the sequences that status lines are drawn with. */
export function screenOf(text: string, columns = 100): string[] {
  const lines: string[] = ['']
  let [row, column, isCut] = [0, 0, false]
  const line = () => lines[row] ?? ''
  for (const [part] of text.matchAll(/\u001b\[[0-9;?]*[A-Za-z]|[^]/gu)) {
    if (part === '\u001b[1A') row = Math.max(0, row - 1)
    else if (part === '\u001b[2K') lines[row] = ''
    else if (part === '\u001b[?7l') isCut = true
    else if (part === '\u001b[?7h') isCut = false
    else if (part === '\r') column = 0
    else if (part === '\n') {
      row++
      column = 0
      lines[row] ??= ''
    } else if (!part.startsWith('\u001b')) {
      if (column >= columns && isCut) column = columns - 1
      if (column >= columns) {
        row++
        column = 0
        lines[row] ??= ''
      }
      lines[row] = `${line().slice(0, column).padEnd(column)}${part}${line().slice(column + 1)}`
      column++
    }
  }
  while (lines.at(-1) === '') lines.pop()
  return lines
}
