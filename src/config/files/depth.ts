/** No config is this deep, and the stack of the parser is deeper. */
const MOST = 500

/**
 * The offset at which a text begins to nest too deeply to be parsed: parsers go down by calling themselves, and
 * the engine ends the process when its stack runs out inside a regular expression. Looks at characters only:
 * brackets that stay open, and markers of lists in lists (`- - -`), whatever they stand in.
 */
export function tooDeepAt(text: string): number | undefined {
  let open = 0
  let markers = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text[at]
    if (unit === '[' || unit === '{') open++
    else if ((unit === ']' || unit === '}') && open > 0) open--
    if (unit === '-' || unit === '?' || unit === ':') markers++
    else if (unit !== ' ' && unit !== '\t') markers = 0
    if (open > MOST || markers > MOST) return at
  }
  return undefined
}
