/** Dark on light, as the pictures are read on a page. */
export const ink = {
  text: '#24292f',
  faint: '#6b7480',
  rule: '#d9dee4',
  paper: '#ffffff',
  ground: '#f4f6f8',
} as const

export interface TextLook {
  /** In pixels. Default: 12. */
  readonly size?: number
  readonly colour?: string
  readonly bold?: boolean
  readonly anchor?: 'start' | 'middle' | 'end'
}

/** Text whose baseline begins, or ends, at a point. */
export function text(x: number, y: number, words: string, look: TextLook = {}): string {
  const { size = 12, colour = ink.text, bold = false, anchor = 'start' } = look
  const attributes = [
    `x="${coordinate(x)}" y="${coordinate(y)}" fill="${colour}"`,
    ...(size === 12 ? [] : [`font-size="${size}"`]),
    ...(bold ? ['font-weight="600"'] : []),
    ...(anchor === 'start' ? [] : [`text-anchor="${anchor}"`]),
  ]
  return `<text ${attributes.join(' ')}>${escaped(words)}</text>`
}

export interface Box {
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
}

export function rectangle({ x, y, width, height }: Box, attributes: string): string {
  const [left, top, wide, high] = [x, y, width, height].map(coordinate)
  return `<rect x="${left}" y="${top}" width="${wide}" height="${high}" ${attributes}/>`
}

export function line(x1: number, y1: number, x2: number, y2: number, colour: string): string {
  const [left, top, right, bottom] = [x1, y1, x2, y2].map(coordinate)
  return `<path d="M${left} ${top}L${right} ${bottom}" stroke="${colour}"/>`
}

/** Escapes a text for an element. */
export function escaped(words: string): string {
  return words
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}

/** Finer steps than a tenth of a pixel are invisible. */
export const coordinate = (value: number) => String(Math.round(value * 10) / 10)

/** Upper bound of a text's width, in pixels, in any sans serif font. */
export function widthOf(words: string, size = 12, bold = false): number {
  const ems = [...words].reduce((sum, letter) => sum + emsOf(letter), 0)
  return ems * size * (bold ? 1.1 : 1)
}

function emsOf(letter: string): number {
  if (/[iljtfrI.,:;'|!()[\] ]/.test(letter)) return 0.38
  if (/[mwMW%@—]/.test(letter)) return 0.95
  return /[A-Z_×]/.test(letter) ? 0.76 : 0.62
}

/** Returns a text cut to at most `room` pixels, with an ellipsis. */
export function shortened(words: string, room: number, size = 12): string {
  if (widthOf(words, size) <= room) return words
  let kept = words
  while (kept !== '' && widthOf(`${kept}…`, size) > room) kept = kept.slice(0, -1)
  return `${kept.trimEnd()}…`
}

/** Returns lines of at most `room` pixels, broken between words. */
export function wrapped(words: string, room: number, size = 12, bold = false): string[] {
  const lines = ['']
  for (const word of words.split(' ')) {
    const longer = `${lines.at(-1)} ${word}`.trimStart()
    if (lines.at(-1) === '' || widthOf(longer, size, bold) <= room) lines[lines.length - 1] = longer
    else lines.push(word)
  }
  return lines
}
