/** The kind of a text, which decides its colour. */
export type Tone = 'good' | 'doubtful' | 'bad' | 'name' | 'aside' | 'strong'

/** Parameters of the SGR sequences that begin and end each tone. */
const codes: Readonly<Record<Tone, readonly [number, number]>> = {
  good: [32, 39],
  doubtful: [33, 39],
  bad: [31, 39],
  name: [36, 39],
  aside: [90, 39],
  strong: [1, 22],
}

/** Colours a text, or returns it unchanged when colours are off. */
export type Paint = (tone: Tone, text: string) => string

export const plain: Paint = (_, text) => text

export const coloured: Paint = (tone, text) => {
  const [begin, end] = codes[tone]
  return `\u001b[${begin}m${text}\u001b[${end}m`
}

/**
 * True when an output gets colours: when it is a terminal, but no `dumb` terminal. `FORCE_COLOR` decides for any output
 * (`0` and `false` mean no colours) and, as in Node, wins over `NO_COLOR`. `NO_COLOR` with any text switches colours
 * off.
 */
export function wantsColours(
  isTTY: boolean,
  { FORCE_COLOR: forced, NO_COLOR: refused, TERM: terminal }: Readonly<Record<string, string | undefined>>,
): boolean {
  if (forced !== undefined) return forced !== '0' && forced !== 'false'
  return isTTY && !refused && terminal !== 'dumb'
}

/** Returns the function that colours texts for an output, or leaves texts unchanged. */
export const paintFor = (...asked: Parameters<typeof wantsColours>): Paint =>
  wantsColours(...asked) ? coloured : plain

const SEQUENCE = /(\u001b\[(?:1|22|3[1236]|39|90)m)/

/** Splits a text at our colour sequences. Odd indexes have the sequences, even indexes the text between. */
export const splitColours = (text: string): string[] => text.split(SEQUENCE)
