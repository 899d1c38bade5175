import { parseJson } from './jsonrpc.ts'

/** Most values taken from one object. */
const MAX_VALUES = 1_000

/** Shorter texts could come from anywhere, in characters. */
const SHORTEST_TEXT = 6

/** Shorter numbers could come from anywhere, in digits. */
const FEWEST_DIGITS = 4

/** Longest text that is a value as a whole, in characters; a longer text has values word by word only. */
const LONGEST_VALUE = 4_096

/** Longest text that is read, in characters. */
const LONGEST_TEXT = 64 * 1024

/** A number as written in a text. */
const NUMBER = /^[+-]?\d[\d.]*$/

export interface Distinctive {
  /** Distinct values as text: whole texts, numbers, and words with a digit, also within JSON in a text. */
  readonly values: readonly string[]
  /** The other words of texts. */
  readonly words: readonly string[]
  /** Whether both are complete: no text was too long, and there were few enough. */
  readonly isWhole: boolean
}

/** Returns the strings and numbers within a value that hardly occur by chance. */
export function distinctiveIn(value: unknown): Distinctive {
  const values = new Set<string>()
  const words = new Set<string>()
  let isWhole = true
  const open: unknown[] = [value]
  // Not recursive: results may nest to any depth.
  while (open.length > 0 && values.size + words.size < MAX_VALUES) {
    const next = open.pop()
    if (typeof next === 'object' && next !== null) {
      for (const held of Object.values(next)) open.push(held)
    } else if (typeof next === 'number') {
      add(String(next), values)
    } else if (typeof next === 'string') {
      if (next.length > LONGEST_TEXT) {
        isWhole = false
        continue
      }
      if (next.length <= LONGEST_VALUE) add(next, values)
      for (const word of next.split(/[^\p{L}\p{N}_.+-]+/u))
        add(word.replace(/\.+$/, ''), /\d/.test(word) ? values : words)
      const inside = /^\s*[{[]/.test(next) ? parseJson(next) : undefined
      if (inside !== undefined) open.push(inside)
    }
  }
  for (const word of words) if (values.has(word)) words.delete(word)
  return { values: [...values], words: [...words], isWhole: isWhole && open.length === 0 }
}

function add(text: string, found: Set<string>): void {
  if (text.length >= SHORTEST_TEXT || isLongNumber(text)) found.add(text)
}

const isLongNumber = (text: string) => NUMBER.test(text) && text.replace(/\D/g, '').length >= FEWEST_DIGITS
