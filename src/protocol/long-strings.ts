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

/**
 * Shortest string that counts as long, in bytes. Finding a string of this length costs much less than copying the
 * string.
 */
const LONG = 16 * 1024

/**
 * A string nested deeper, or under a longer key (in bytes), never counts as long: recording its path would cost as much
 * as a copy.
 */
const MOST_STEPS = 8
const LONGEST_KEY = 256

/** Most members of the outermost object that are noted: a message has three or four. */
export const MOST_MEMBERS = 16

/** Deepest nesting of objects and arrays; `read` returns false for a deeper text. */
const MAX_DEPTH = 128

/** Bytes of a string read one by one before the word search: for most strings, which are shorter, this is faster. */
const SHORT = 32

const COLON = 0x3a
const SPACE = 0x20
const U = 0x75

/** Returned in place of a position when reading must stop. */
const UNREADABLE = -1

/** Marks an array in `#ends`; `#starts` then holds the index of the current element. */
const ARRAY = -1

/** 1 for each byte that may follow a backslash, except for `u`. */
const escapes = new Uint8Array(256)
for (const byte of Buffer.from('"\\/bfnrt')) escapes[byte] = 1

const hexDigits = new Uint8Array(256)
for (const byte of Buffer.from('0123456789abcdefABCDEF')) hexDigits[byte] = 1

/** A long string, quotes included, with the keys and indices from the top to the string. */
export interface LongString extends Span {
  readonly path: readonly (Span | number)[]
}

/** A member of the outermost object; white space around its value counts as part of the value. */
export interface TopMember {
  readonly key: Span
  readonly value: Span
}

/**
 * Finds the long strings of a JSON text in UTF-8 that comes in chunks. Checks little except the syntax of strings. The
 * text with a short string in place of each long string is JSON if and only if the original is JSON.
 */
export class LongStrings {
  readonly found: LongString[] = []
  /** The members of the outermost object, at most 16. */
  readonly members: TopMember[] = []
  readonly #least: number
  /** Length of the chunks before the current chunk, in bytes. */
  #before = 0
  #place: 'outside' | 'string' | 'escape' | 'hex' = 'outside'
  /** Digits that an escape still needs. */
  #digits = 0
  /** Start and end of the current or last string, as positions in the whole text. */
  #start = 0
  #end = 0
  /** Members and values so far, counted as `sizeOf` in `json-parse.ts` counts. */
  #members = 0
  #values = 0
  #depth = 0
  /** Length of the long strings found so far, in bytes. */
  #long = 0
  /** Start of the value of the current top-level member; 0 before the first. */
  #value = 0
  /** By depth, begin and end of the last key of the object open there; for an array, the index and `ARRAY`. */
  readonly #starts: number[] = []
  readonly #ends: number[] = []

  /** `least`: shortest long string, in bytes with quotes; by default 16 KiB. */
  constructor(least = LONG) {
    this.#least = least
  }

  /**
   * Reads a chunk. Returns false to stop: the text is not JSON, is nested deeper than 128, or exceeds a count limit.
   */
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

  /** Bytes read so far outside of long strings; leaves out a string that may still become long. */
  get rest(): number {
    const mayBeLong = this.#place !== 'outside' && this.#depth <= MOST_STEPS
    return (mayBeLong ? this.#start : this.#before) - this.#long
  }

  get isComplete(): boolean {
    return this.#place === 'outside' && this.#depth === 0
  }

  /**
   * Reads bytes outside of strings, and short strings, up to a longer or incomplete string or the end of the chunk.
   * Returns the position.
   */
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
      // Most bytes outside of strings belong to numbers and words.
      if (byte > COLON ? byte < OPEN_ARRAY : byte < COLON && byte !== COMMA) continue
      if (byte === COMMA) {
        this.#values++
        if (ends[depth] === ARRAY) starts[depth]!++
        else if (depth === 1) this.#endMember(before + at)
      } else if (byte === COLON) {
        this.#members++
        // The long string is a key, and keys are not recorded as long strings.
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

  /**
   * Reads a string past its closing quote, to a bad or incomplete escape, or to the end of the chunk. Returns the
   * position.
   */
  #inside(chunk: Buffer, words: Int32Array, from: number): number {
    let at = endOfPlain(chunk, words, from)
    for (let length = escapeAt(chunk, at); length > 0; length = escapeAt(chunk, at)) {
      at += length
      // A server that writes only ASCII sends text in other scripts as one escape after another.
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

  /** Whether the byte is allowed at this place of an escape. */
  #escaped(byte: number): boolean {
    if (this.#place === 'escape') {
      this.#place = byte === U ? 'hex' : 'string'
      this.#digits = 4
      return byte === U || escapes[byte] === 1
    }
    if (--this.#digits === 0) this.#place = 'string'
    return hexDigits[byte] === 1
  }

  /** Records the top-level member that ends at `end`; its key is the last key of that level. */
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

/** Returns the length of the escape that begins at `at`, in bytes; 0 without a complete escape. */
function escapeAt(chunk: Buffer, at: number): number {
  if (chunk[at] !== BACKSLASH || at + 1 >= chunk.length) return 0
  const kind = chunk[at + 1] as number
  if (escapes[kind] === 1) return 2
  if (kind !== U || at + 6 > chunk.length) return 0
  for (let digit = at + 2; digit < at + 6; digit++) if (hexDigits[chunk[digit] as number] !== 1) return 0
  return 6
}

const noWords = new Int32Array(0)

/** Returns the bytes of a chunk in groups of four, from the first aligned address on. */
function wordsOf({ buffer, byteOffset, length }: Buffer): Int32Array {
  const skipped = -byteOffset & 3
  return length < skipped ? noWords : new Int32Array(buffer, byteOffset + skipped, (length - skipped) >> 2)
}

/** Returns the first position from `at` on of a quote, backslash or control character; else the chunk's length. */
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

/** 1 for each byte that ends plain text in a string. A table is fast: the bytes of short strings, and the first bytes of long strings, are looked up. */
const specials = new Uint8Array(256).fill(1, 0, SPACE)
specials[QUOTE] = specials[BACKSLASH] = 1

const isSpecial = (byte: number): boolean => specials[byte] === 1

/**
 * Whether `isSpecial` holds for any of four bytes, by the borrows of subtractions
 * (https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord).
 */
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
