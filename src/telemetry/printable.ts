import { clip } from '../units/recent.ts'
import { splitColours } from './colours.ts'

/**
 * The characters by which foreign text may affect a terminal and the lines of a log. Control characters (C0, DEL, C1)
 * move the cursor, change colours and titles, or begin a line. Direction marks and isolates change the order in which
 * text is shown. Line and paragraph separators end a line for some readers.
 */
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL = new RegExp(UNPRINTABLE, 'g')

/** The same, without the characters that JSON itself escapes. */
const IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL_IN_JSON = new RegExp(IN_JSON, 'g')

/** Longest shown text, in UTF-16 code units. */
const LONGEST = 8 * 1024

/** Whether a text holds a character that no terminal should get. */
export function hasUnprintable(text: string): boolean {
  return UNPRINTABLE.test(text)
}

/** Makes foreign text fit a readable line: writes unprintable characters as `\u001b`, and cuts long text. */
export function printable(text: string, longest: number = LONGEST): string {
  const shown = text.length > longest ? `${clip(text, longest)}…` : text
  return UNPRINTABLE.test(shown) ? shown.replace(ALL, escaped) : shown
}

/** Returns a server's or an agent's words where the protocol has text; for other types, only names the type. */
export function printableWords(words: unknown, longest: number): string {
  return typeof words === 'string'
    ? printable(words, longest)
    : `no text but ${words === null ? 'null' : typeof words}`
}

/** Returns a painted line with our own colours. Foreign words must be made printable before painting. */
export function printablePainted(line: string): string {
  if (!UNPRINTABLE.test(line)) return line
  return splitColours(line)
    .map((part, index) => (index % 2 === 0 ? part.replace(ALL, escaped) : part))
    .join('')
}

/** Returns JSON with the same meaning and without anything a terminal obeys, except its own line breaks. */
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
