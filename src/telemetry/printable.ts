import { clip } from '../units/recent.ts'
import { splitColours } from './colours.ts'

/**
 * Characters by which foreign text may control a terminal or forge log lines. Control characters (C0, DEL, C1) move the
 * cursor, change colours and titles, or begin a line. Direction marks and isolates change the order of shown text. Line
 * and paragraph separators end a line in some programs.
 */
const UNPRINTABLE =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL = new RegExp(UNPRINTABLE, 'g')

/** The same characters, except the characters that JSON itself escapes. */
const IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]/
const ALL_IN_JSON = new RegExp(IN_JSON, 'g')

/** Longest shown text, in UTF-16 code units. */
const LONGEST = 8 * 1024

/** True when a text has a character that must not be written to a terminal. */
export function hasUnprintable(text: string): boolean {
  return UNPRINTABLE.test(text)
}

/**
 * Returns foreign text for a readable line: with escapes such as `\u001b` for unprintable characters, and cut if too
 * long.
 */
export function printable(text: string, longest: number = LONGEST): string {
  const shown = text.length > longest ? `${clip(text, longest)}…` : text
  return UNPRINTABLE.test(shown) ? shown.replace(ALL, escaped) : shown
}

/**
 * Returns a text from a server or an agent in printable form. For a value that is no text, returns only the name of its
 * type.
 */
export function printableWords(words: unknown, longest: number): string {
  return typeof words === 'string'
    ? printable(words, longest)
    : `no text but ${words === null ? 'null' : typeof words}`
}

/**
 * Returns a line with all unprintable characters escaped, except our own colour sequences. Make foreign text printable
 * before you colour it.
 */
export function printablePainted(line: string): string {
  if (!UNPRINTABLE.test(line)) return line
  return splitColours(line)
    .map((part, index) => (index % 2 === 0 ? part.replace(ALL, escaped) : part))
    .join('')
}

/**
 * Returns JSON with the same meaning, without characters that control a terminal. Line breaks between its parts stay.
 */
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
