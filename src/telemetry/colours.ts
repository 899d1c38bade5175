/** The kind of a piece of text, which decides its colour. */
export type Tone = 'good' | 'doubtful' | 'bad' | 'name' | 'aside' | 'strong'

/** Parameters of the SGR sequences that begin and end each. */
const codes: Readonly<Record<Tone, readonly [number, number]>> = {
  good: [32, 39],
  doubtful: [33, 39],
  bad: [31, 39],
  name: [36, 39],
  aside: [90, 39],
  strong: [1, 22],
}

/** Gives a text its colour, or leaves it as it is where none are wanted. */
export type Paint = (tone: Tone, text: string) => string

export const plain: Paint = (_, text) => text

export const coloured: Paint = (tone, text) => {
  const [begin, end] = codes[tone]
  return `\u001b[${begin}m${text}\u001b[${end}m`
}

/**
 * Whether an output gets colours: one that is a terminal does. `FORCE_COLOR` settles it for any output (`0` and `false`
 * are no), and goes before `NO_COLOR`, as it does in Node; `NO_COLOR` counts with any text in it, and a terminal that
 * calls itself `dumb` knows none.
 */
export function wantsColours(
  isTTY: boolean,
  { FORCE_COLOR: forced, NO_COLOR: refused, TERM: terminal }: Readonly<Record<string, string | undefined>>,
): boolean {
  if (forced !== undefined) return forced !== '0' && forced !== 'false'
  return isTTY && !refused && terminal !== 'dumb'
}

/** How an output is painted. */
export const paintFor = (...asked: Parameters<typeof wantsColours>): Paint =>
  wantsColours(...asked) ? coloured : plain

/** All of these sequences. */
const SEQUENCE = /(\u001b\[(?:1|22|3[1236]|39|90)m)/

/** The parts of a text that are sequences of ours, at odd places, and what stands between them, at even ones. */
export const splitColours = (text: string): string[] => text.split(SEQUENCE)
