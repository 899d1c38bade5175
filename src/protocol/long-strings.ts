import { MAX_MEMBERS, MAX_VALUES } from './json-parse.ts'
import {
  type Span,
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
} from './json-span.ts'

/** From which length on a string is a long one, in bytes: what it costs to find it is nothing then to what a copy of it costs. */
const LONG = 16 * 1024

/** One that is deeper than that, or behind a key that is longer, is a string like any other: its way there would cost as much. */
const MOST_STEPS = 8
const LONGEST_KEY = 256

/** As many members of the outermost object are noted: a message has three or four. */
export const MOST_MEMBERS = 16

/** How deep objects and arrays may be nested; what is deeper is read as any other text. */
const MAX_DEPTH = 128

/** So much of a string is looked at byte by byte: most are shorter, and for those it is faster. */
const SHORT = 32

const COLON = 0x3a
const SPACE = 0x20
const U = 0x75

/** Stands where a position is returned: the text is not read any further. */
const UNREADABLE = -1

/** For an array, in place of the end of an object's last key: where that has the beginning of the key, it has an index. */
const ARRAY = -1

/** By byte, whether it may follow a backslash and is no `u`. */
const escapes = new Uint8Array(256)
for (const byte of Buffer.from('"\\/bfnrt')) escapes[byte] = 1

/** By byte, whether it is a hexadecimal digit. */
const hexDigits = new Uint8Array(256)
for (const byte of Buffer.from('0123456789abcdefABCDEF')) hexDigits[byte] = 1

/** A long string, its quotes included, and the keys and indices that lead to it from the top. */
export interface LongString extends Span {
  readonly path: readonly (Span | number)[]
}

/** A member of the outermost object; white space around its value counts as part of it. */
export interface TopMember {
  readonly key: Span
  readonly value: Span
}

/**
 * Finds the long strings of a JSON text in UTF-8 that comes in chunks. It knows strings and looks at nothing else more closely than
 * it must: with each long string replaced by a short one, a text is JSON if and only if it was before.
 */
export class LongStrings {
  readonly found: LongString[] = []
  /** The members of the outermost object, but no more than 16. */
  readonly members: TopMember[] = []
  readonly #least: number
  /** Length of the chunks before the one that is read, in bytes. */
  #before = 0
  #place: 'outside' | 'string' | 'escape' | 'hex' = 'outside'
  /** Digits that an escape still needs. */
  #digits = 0
  /** The string that is being read, or was last. */
  #start = 0
  #end = 0
  /** The members and values so far, counted as `sizeOf` in `json-parse.ts` counts them. */
  #members = 0
  #values = 0
  /** Objects and arrays that are open. */
  #depth = 0
  /** Length of the long strings that were found, in bytes. */
  #long = 0
  /** Where the value of the member at the top begins that is being read. */
  #value = 0
  /** By depth, where the last key of the object that is open there begins and ends; of an array the index, and `ARRAY`. */
  readonly #starts: number[] = []
  readonly #ends: number[] = []

  /** `least`: from which length on a string is a long one, in bytes, its quotes included; by default 16 KiB. */
  constructor(least = LONG) {
    this.#least = least
  }

  /** Reads on. False: what was read is no JSON, is nested deeper than 128, or has too much of anything; reading it is over then. */
  read(chunk: Buffer): boolean {
    const { length } = chunk
    const words = wordsOf(chunk)
    let at = 0
    while (at < length && at !== UNREADABLE) {
      if (this.#place === 'outside') at = this.#outside(chunk, at)
      else if (this.#place === 'string') at = this.#inside(chunk, words, at)
      else at = this.#escaped(chunk[at] as number) ? at + 1 : UNREADABLE
    }
    this.#before += length
    return at !== UNREADABLE
  }

  /** How much was read that belongs to no long string, in bytes; a string that may still become one is left out. */
  get rest(): number {
    const mayBeLong = this.#place !== 'outside' && this.#depth <= MOST_STEPS
    return (mayBeLong ? this.#start : this.#before) - this.#long
  }

  /** Whether the text may end here. */
  get isComplete(): boolean {
    return this.#place === 'outside' && this.#depth === 0
  }

  /** Reads to where a string is neither short nor whole in the chunk, or to its end. */
  #outside(chunk: Buffer, from: number): number {
    const { length } = chunk
    const before = this.#before
    const starts = this.#starts
    const ends = this.#ends
    let depth = this.#depth
    let start = this.#start
    let end = this.#end
    let at = from
    for (; at < length; at++) {
      const byte = chunk[at] as number
      if (byte === QUOTE) {
        start = before + at
        at++
        for (const stop = Math.min(at + SHORT, length); at < stop && !isSpecial(chunk[at] as number);) at++
        if (chunk[at] === QUOTE && before + at + 1 - start < this.#least) {
          end = before + at + 1
          continue
        }
        this.#place = 'string'
        break
      }
      // Most bytes outside of strings are those of numbers and words.
      if (byte > COLON ? byte < OPEN_ARRAY : byte < COLON && byte !== COMMA) continue
      if (byte === COMMA) {
        this.#values++
        if (ends[depth] === ARRAY) starts[depth]!++
        else if (depth === 1) this.#endMember(before + at)
      } else if (byte === COLON) {
        this.#members++
        // It was a key, and stays in its place.
        if (this.found.at(-1)?.start === start) {
          this.found.pop()
          this.#long -= end - start
        }
        starts[depth] = start
        ends[depth] = end
        if (depth === 1) this.#value = before + at + 1
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        this.#values++
        if (++depth > MAX_DEPTH) return UNREADABLE
        starts[depth] = 0
        ends[depth] = byte === OPEN_ARRAY ? ARRAY : 0
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        if (--depth < 0) return UNREADABLE
        if (depth === 0) this.#endMember(before + at)
      }
    }
    if (this.#members > MAX_MEMBERS || this.#values > MAX_VALUES) return UNREADABLE
    this.#depth = depth
    this.#start = start
    this.#end = end
    return at
  }

  /** Reads to behind the quote that closes the string, a backslash before what is no escape or is cut, or the end of the chunk. */
  #inside(chunk: Buffer, words: Int32Array, from: number): number {
    let at = endOfPlain(chunk, words, from)
    for (let length = escapeAt(chunk, at); length > 0; length = escapeAt(chunk, at)) {
      at += length
      // Text in another script is one escape after the other where its server writes nothing but ASCII.
      if (chunk[at] !== BACKSLASH) at = endOfPlain(chunk, words, at)
    }
    const byte = chunk[at]
    if (byte === undefined) return chunk.length
    if (byte < SPACE) return UNREADABLE
    if (byte === BACKSLASH) this.#place = 'escape'
    else {
      this.#place = 'outside'
      this.#end = this.#before + at + 1
      if (this.#end - this.#start >= this.#least && this.#depth <= MOST_STEPS) this.#find()
    }
    return at + 1
  }

  /** Whether a byte may stand there. */
  #escaped(byte: number): boolean {
    if (this.#place === 'escape') {
      this.#place = byte === U ? 'hex' : 'string'
      this.#digits = 4
      return byte === U || escapes[byte] === 1
    }
    if (--this.#digits === 0) this.#place = 'string'
    return hexDigits[byte] === 1
  }

  /** The key of what ends here is the last that stood at the top. */
  #endMember(end: number): void {
    if (this.members.length === MOST_MEMBERS || this.#value === 0) return
    const key = { start: this.#starts[1] as number, end: this.#ends[1] as number }
    this.members.push({ key, value: { start: this.#value, end } })
  }

  #find(): void {
    const path = Array.from({ length: this.#depth }, (_, level) => {
      const [start, end] = [this.#starts[level + 1] as number, this.#ends[level + 1] as number]
      return end === ARRAY ? start : { start, end }
    })
    if (!path.every((step) => typeof step === 'number' || step.end - step.start <= LONGEST_KEY)) return
    this.found.push({ start: this.#start, end: this.#end, path })
    this.#long += this.#end - this.#start
  }
}

/** Length of the escape that begins there, in bytes; 0 where there is none, or not all of it. */
function escapeAt(chunk: Buffer, at: number): number {
  if (chunk[at] !== BACKSLASH || at + 1 >= chunk.length) return 0
  const kind = chunk[at + 1] as number
  if (escapes[kind] === 1) return 2
  if (kind !== U || at + 6 > chunk.length) return 0
  for (let digit = at + 2; digit < at + 6; digit++) if (hexDigits[chunk[digit] as number] !== 1) return 0
  return 6
}

const noWords = new Int32Array(0)

/** The bytes of a chunk four at a time, from the first place in memory on where an integer may stand. */
function wordsOf({ buffer, byteOffset, length }: Buffer): Int32Array {
  const skipped = -byteOffset & 3
  return length < skipped ? noWords : new Int32Array(buffer, byteOffset + skipped, (length - skipped) >> 2)
}

/** Where the first byte stands, from `at` on, that is a quote, a backslash or a control character; the end when there is none. */
function endOfPlain(chunk: Buffer, words: Int32Array, at: number): number {
  const { length } = chunk
  for (const stop = Math.min(at + SHORT, length); at < stop; at++)
    if (isSpecial(chunk[at] as number)) return at
  const skipped = words.byteOffset - chunk.byteOffset
  let word = (at - skipped + 3) >> 2
  for (const stop = Math.min(skipped + 4 * word, length); at < stop; at++)
    if (isSpecial(chunk[at] as number)) return at
  while (word < words.length && !hasSpecial(words[word] as number)) word++
  for (at = Math.max(at, skipped + 4 * word); at < length; at++) if (isSpecial(chunk[at] as number)) return at
  return length
}

/** By byte, whether it ends what is plain in a string; a table, because it is looked up for each byte of most strings. */
const specials = new Uint8Array(256).fill(1, 0, SPACE)
specials[QUOTE] = specials[BACKSLASH] = 1

const isSpecial = (byte: number): boolean => specials[byte] === 1

/** `isSpecial` of any of four bytes, by the borrows of subtractions (https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord). */
function hasSpecial(word: number): boolean {
  const quotes = word ^ 0x22222222
  const slashes = word ^ 0x5c5c5c5c
  return (
    ((((word - 0x20202020) & ~word) |
      ((quotes - 0x01010101) & ~quotes) |
      ((slashes - 0x01010101) & ~slashes)) &
      0x80808080) !==
    0
  )
}
