import { clip } from '../units/recent.ts'
import { splitColours } from './colours.ts'

/**
 * The characters by which text from outside may affect a terminal and the lines of a log. Control characters (C0, DEL, C1) move the
 * cursor, change colours and titles, or begin a line. Marks of direction and isolates show text in another order than it has. Line and
 * paragraph separators end a line for some readers.
 */
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL = new RegExp(UNPRINTABLE, 'g')

/** The same without what JSON escapes itself. */
const IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL_IN_JSON = new RegExp(IN_JSON, 'g')

/** Longest text that is shown, in UTF-16 code units. */
const LONGEST = 8 * 1024

/** Whether a text holds a character that no terminal should get. */
export function hasUnprintable(text: string): boolean {
  return UNPRINTABLE.test(text)
}

/** A text from outside as part of a line for people: what is unprintable is written as `\u001b`, what is too long is cut. */
export function printable(text: string, longest: number = LONGEST): string {
  const shown = text.length > longest ? `${clip(text, longest)}…` : text
  return UNPRINTABLE.test(shown) ? shown.replace(ALL, escaped) : shown
}

/** The words of a server or an agent where the protocol has text; whoever sends something else gets no say. */
export function printableWords(words: unknown, longest: number): string {
  return typeof words === 'string'
    ? printable(words, longest)
    : `no text but ${words === null ? 'null' : typeof words}`
}

/** One line that was painted: our own colours stay. Words of others in it have to be made printable before they are painted. */
export function printablePainted(line: string): string {
  if (!UNPRINTABLE.test(line)) return line
  return splitColours(line)
    .map((part, index) => (index % 2 === 0 ? part.replace(ALL, escaped) : part))
    .join('')
}

/** JSON text that means the same and holds nothing that a terminal would obey, but for its own line breaks. */
export function printableJson(json: string): string {
  return IN_JSON.test(json) ? json.replace(ALL_IN_JSON, coded) : json
}

function escaped(found: string): string {
  switch (found) {
    case '\n':
      return '\\n'
    case '\r':
      return '\\r'
    case '\t':
      return '\\t'
    default:
      return coded(found)
  }
}

const coded = (found: string) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`
