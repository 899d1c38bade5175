import { isAscii, isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { StringDecoder } from 'node:string_decoder'
import { parseExactly } from './json-parse.ts'
import { BACKSLASH, type Edit, inOrder, type Span, splice } from './json-span.ts'
import { isObject, type Envelope } from './jsonrpc.ts'
import { type LongStrings, MOST_MEMBERS, type TopMember } from './long-strings.ts'

/** The random part of the marks that replace long strings during parsing: no peer can guess such a mark. */
const nonce = randomBytes(16).toString('hex')

/** A long string of a message, and the short mark that replaces the string during parsing. */
interface LongPart extends Span {
  /** The keys and indices from the top to the string. */
  readonly path: readonly (string | number)[]
  readonly mark: string
}

interface LargeMessageParts {
  /** The long strings, in the order of the text. */
  readonly long?: readonly LongPart[]
  readonly members?: readonly TopMember[]
  /** The parsed text; if absent, the text is parsed at the first access. */
  readonly value?: Envelope['value'] | undefined
  readonly status?: number
}

/** The parts of an edited message besides its text. */
export interface Edited {
  /** The parsed text; if absent, the text is parsed at the first access. */
  readonly value?: Envelope['value'] | undefined
  /** The HTTP status; if absent, the status of the original message. */
  readonly status?: number
}

/**
 * A message kept as the received bytes. Its `value` equals the parsed text, but long strings and `text` are decoded
 * only at the first access. Most large messages consist of one long string that the gateway never reads. Decoding this
 * string would need three more copies per call.
 */
export class LargeMessage implements Envelope {
  declare readonly text: string
  declare readonly value: Envelope['value']
  /** The status of the HTTP reply that brought the message; 200 unless given. */
  readonly status: number
  /** Private, so that a spread copy with another text does not copy the bytes. */
  readonly #bytes: Bytes
  readonly #long: readonly LongPart[]
  readonly #members: readonly TopMember[]

  private constructor(bytes: Bytes, { long = [], members = [], value, status = 200 }: LargeMessageParts) {
    this.status = status
    this.#bytes = bytes
    this.#long = long
    this.#members = members
    readLater(this, 'text', () => bytes.text({ start: 0, end: bytes.length }))
    if (value === undefined) readLater(this, 'value', () => valueOf(bytes, long))
    else this.value = value
  }

  /** Returns a large message with this text. Encodes the text as bytes, which takes long for a large text. */
  static of({
    text,
    value,
    status,
  }: Pick<LargeMessage, 'text' | 'status'> & Partial<Envelope>): LargeMessage {
    return new LargeMessage(new Bytes([Buffer.from(text)]), { value, status })
  }

  /**
   * Returns the message in `chunks`, with the long strings that `LongStrings` found. Undefined for text that is no JSON
   * object, and for bytes that are not UTF-8.
   */
  static read(
    chunks: readonly Buffer[],
    { isComplete, found, members }: LongStrings,
  ): LargeMessage | undefined {
    if (!isComplete || !areUtf8(chunks)) return undefined
    const bytes = new Bytes(chunks)
    try {
      const long = found.map(({ start, end, path }, index) => {
        const steps = path.map((step) => (typeof step === 'number' ? step : bytes.string(step)))
        return { start, end, path: steps, mark: standIn(index) }
      })
      const value = valueOf(bytes, long)
      return isObject(value) ? new LargeMessage(bytes, { long, members, value }) : undefined
    } catch (error) {
      if (error instanceof SyntaxError) return undefined
      throw error
    }
  }

  /** Whether an object is a large message itself, not a spread copy. */
  static is(message: object): message is LargeMessage {
    return #bytes in message
  }

  get chunks(): readonly Buffer[] {
    return this.#bytes.chunks
  }

  /** Length of the text in UTF-8, in bytes. */
  get byteLength(): number {
    return this.#bytes.length
  }

  /**
   * Returns the byte spans of the values of top-level members; undefined if any span is unknown, as after an edit. The
   * last of equal keys counts.
   */
  locate(names: readonly string[]): Span[] | undefined {
    if (this.#members.length >= MOST_MEMBERS) return undefined
    const spans = names.map((name) => this.#members.findLast(({ key }) => this.#says(key, name))?.value)
    return spans.every((span) => span !== undefined)
      ? spans.map(({ start, end }) => ({
          start: this.#bytes.skipSpace(start),
          end: this.#bytes.skipSpaceBefore(end),
        }))
      : undefined
  }

  /** Whether a key equals a name; a key too long for the name, even fully escaped, is not read. */
  #says(key: Span, name: string): boolean {
    const isTooLong = key.end - key.start > 2 + name.length * LONGEST_ESCAPE
    return !isTooLong && this.#bytes.string(key) === name
  }

  /**
   * Returns the message with edits of its bytes, which must be sorted and must not overlap. Does not copy unedited
   * bytes. Use it only for the last edits of a message, because the result no longer knows its long strings.
   */
  spliced(edits: readonly Edit[]): LargeMessage {
    const chunks: Buffer[] = []
    let start = 0
    for (const edit of edits) {
      chunks.push(...this.#bytes.pieces({ start, end: edit.start }), Buffer.from(edit.with))
      start = edit.end
    }
    chunks.push(...this.#bytes.pieces({ start, end: this.#bytes.length }))
    return new LargeMessage(new Bytes(chunks.filter(({ length }) => length > 0)), { status: this.status })
  }

  /**
   * Returns the message with edits of its outline. The outline is the text with a short string in place of each long
   * string. `find` returns edits of the outline, in any order. An edit may replace a long string, or a value around it,
   * but must not change the path of another long string. Long strings are not copied.
   */
  edited(
    find: (outline: string) => readonly Edit[],
    { value, status = this.status }: Edited = {},
  ): LargeMessage {
    const { text, places } = outlineOf(this.#bytes, this.#long)
    const edits = inOrder(find(text))
    const chunks: Buffer[] = []
    const long: LongPart[] = []
    let length = 0
    const add = (chunk: Buffer) => {
      if (chunk.length > 0) chunks.push(chunk)
      length += chunk.length
    }
    let short = ''
    let at = 0
    let next = 0
    /** Applies the edits that begin at or before a place of the outline. */
    const editUpTo = (place: number) => {
      for (let edit = edits[next]; edit !== undefined && edit.start <= place; edit = edits[++next]) {
        short += text.slice(at, edit.start) + edit.with
        at = edit.end
      }
    }
    for (const [index, { start, end }] of places.entries()) {
      editUpTo(start)
      if (at > start) continue
      add(Buffer.from(short + text.slice(at, start)))
      short = ''
      at = end
      const part = this.#long[index] as LongPart
      long.push({ ...part, start: length, end: length + part.end - part.start })
      for (const piece of this.#bytes.pieces(part)) add(piece)
    }
    editUpTo(text.length)
    add(Buffer.from(short + text.slice(at)))
    return new LargeMessage(new Bytes(chunks), { long, value, status })
  }
}

/**
 * Returns a message with the edits that `find` makes from its text; all other fields stay. For a large message `find`
 * gets the outline (`LargeMessage.edited`), and the result is a large message. The value is parsed from the text unless
 * given.
 */
export function edited<M extends Envelope>(
  message: M,
  find: (text: string) => readonly Edit[],
  value?: Envelope['value'],
): M {
  if (LargeMessage.is(message)) return message.edited(find, { value }) as Envelope as M
  const text = splice(message.text, find(message.text))
  return { ...message, text, value: value ?? parseExactly(text) }
}

/** Returns the length of a message's text in UTF-8, in bytes. */
export function byteLengthOf(message: Pick<Envelope, 'text'>): number {
  return LargeMessage.is(message) ? message.byteLength : Buffer.byteLength(message.text)
}

const SPACE = 0x20

const U = 0x75

/** Length of `\u0041`, in bytes. */
const LONGEST_ESCAPE = 6

/** Bytes at the beginning of an unread string that `beginningOf` decodes. */
const BEGINNING = 64

/** A long string that is not decoded yet. */
interface Unread {
  /** Length of the string's JSON text, in bytes. */
  readonly length: number
  /** Returns the first bytes, at most 64. */
  first(): Buffer
}

/** By object, the members that are long strings not decoded yet. */
const unread = new WeakMap<object, Map<string | number, Unread>>()

/**
 * Whether the member `key` is a string of certainly more than `than` characters. Only estimates the length of an
 * undecoded string.
 */
export function isSurelyLonger(
  holder: Readonly<Record<string, unknown>>,
  key: string,
  than: number,
): boolean {
  const length = unread.get(holder)?.get(key)?.length
  if (length !== undefined) return length > 2 + than * LONGEST_ESCAPE
  const text = holder[key]
  return typeof text === 'string' && text.length > than
}

/**
 * Returns the member `key` if it is a string; otherwise undefined. Returns only the first part of an undecoded long
 * string, unless this part is blank.
 */
export function beginningOf(holder: Readonly<Record<string, unknown>>, key: string): string | undefined {
  const bytes = unread.get(holder)?.get(key)?.first()
  if (bytes !== undefined) {
    const whole = new StringDecoder('utf8').write(bytes.subarray(0, endOfWhole(bytes)))
    const beginning = JSON.parse(`"${whole}"`) as string
    if (beginning.trim() !== '') return beginning
  }
  const text = holder[key]
  return typeof text === 'string' ? text : undefined
}

/** Returns the length of the longest prefix of a string's first bytes that ends inside no escape. */
function endOfWhole(bytes: Buffer): number {
  let at = 0
  for (let end = 0; end <= bytes.length;) {
    at = end
    end += bytes[at] !== BACKSLASH ? 1 : bytes[at + 1] === U ? LONGEST_ESCAPE : 2
  }
  return at
}

/** Defines a property whose value is computed at the first read. */
function readLater(holder: object, key: string | number, read: () => unknown): void {
  const get = () => {
    const value = read()
    Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true })
    unread.get(holder)?.delete(key)
    return value
  }
  Object.defineProperty(holder, key, { get, enumerable: true, configurable: true })
}

const standIn = (index: number): string => `\0${nonce}${index}`

/** Returns the text with a short string in place of each long string, and the places of the short strings. */
function outlineOf(bytes: Bytes, long: readonly LongPart[]) {
  const places: Span[] = []
  let text = ''
  let from = 0
  for (const { start, end, mark } of long) {
    text += bytes.text({ start: from, end: start })
    const place = text.length
    text += JSON.stringify(mark)
    places.push({ start: place, end: text.length })
    from = end
  }
  text += bytes.text({ start: from, end: bytes.length })
  return { text, places }
}

/** Returns the value of a text; its long strings are read lazily. */
function valueOf(bytes: Bytes, long: readonly LongPart[]): Envelope['value'] {
  const value = parseExactly(outlineOf(bytes, long).text) as Envelope['value']
  for (const part of long) putBack(value, bytes, part)
  return value
}

/**
 * Replaces a mark in the value by its long string. Does nothing if the mark is gone, because a later equal key replaced
 * it.
 */
function putBack(value: unknown, bytes: Bytes, { path, start, end, mark }: LongPart): void {
  const last = path.at(-1)
  let holder: unknown = value
  for (const step of path.slice(0, -1)) holder = memberOf(holder, step)
  if (last === undefined || memberOf(holder, last) !== mark) return
  readLater(holder as object, last, () => bytes.string({ start, end }))
  const first = () => bytes.slice({ start: start + 1, end: Math.min(start + 1 + BEGINNING, end - 1) })
  const others = unread.get(holder as object)
  const itself = { length: end - start, first }
  if (others === undefined) unread.set(holder as object, new Map([[last, itself]]))
  else others.set(last, itself)
}

function memberOf(holder: unknown, key: string | number): unknown {
  const isThere = typeof holder === 'object' && holder !== null && Object.hasOwn(holder, key)
  return isThere ? (holder as Readonly<Record<string | number, unknown>>)[key] : undefined
}

/** Bytes in several chunks, with fast access to any piece. */
class Bytes {
  readonly length: number
  readonly chunks: readonly Buffer[]
  readonly #starts: readonly number[]

  constructor(chunks: readonly Buffer[]) {
    let length = 0
    this.#starts = chunks.map((chunk) => (length += chunk.length) - chunk.length)
    this.length = length
    this.chunks = chunks
  }

  text(span: Span): string {
    const bytes = this.slice(span)
    return isAscii(bytes) ? bytes.toString('latin1') : bytes.toString('utf8')
  }

  string(span: Span): string {
    return JSON.parse(this.text(span)) as string
  }

  /** Returns the bytes of a span; copies the bytes only if they lie in several chunks. */
  slice(span: Span): Buffer {
    const pieces = this.pieces(span)
    return pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces)
  }

  pieces({ start, end }: Span): Buffer[] {
    const pieces: Buffer[] = []
    for (let index = this.#chunkAt(start); index < this.chunks.length; index++) {
      const before = this.#starts[index] as number
      if (before >= end) break
      pieces.push((this.chunks[index] as Buffer).subarray(Math.max(0, start - before), end - before))
    }
    return pieces
  }

  /** Returns the first position from `place` on without white space. */
  skipSpace(place: number): number {
    for (let index = this.#chunkAt(place); index < this.chunks.length; index++) {
      const chunk = this.chunks[index] as Buffer
      const before = this.#starts[index] as number
      for (let at = Math.max(0, place - before); at < chunk.length; at++)
        if ((chunk[at] as number) > SPACE) return before + at
    }
    return this.length
  }

  /** Returns the last position up to `place` without white space before it. */
  skipSpaceBefore(place: number): number {
    for (let index = this.#chunkAt(place - 1); index >= 0; index--) {
      const chunk = this.chunks[index] as Buffer
      const before = this.#starts[index] as number
      for (let at = Math.min(chunk.length, place - before); at > 0; at--)
        if ((chunk[at - 1] as number) > SPACE) return before + at
    }
    return 0
  }

  /** Returns the index of the last chunk that begins at or before `place`. */
  #chunkAt(place: number): number {
    let low = 0
    for (let high = this.#starts.length - 1; low < high;) {
      const middle = (low + high + 1) >> 1
      if ((this.#starts[middle] as number) <= place) low = middle
      else high = middle - 1
    }
    return low
  }
}

/** Whether the chunks together are UTF-8: a character may begin in one chunk and end in the next. */
function areUtf8(chunks: readonly Buffer[]): boolean {
  let begun: Buffer | undefined
  return (
    chunks.every((chunk) => {
      if (begun === undefined && isAscii(chunk)) return true
      const bytes = begun === undefined ? chunk : Buffer.concat([begun, chunk])
      const end = bytes.length - begunAtEnd(bytes)
      begun = end === bytes.length ? undefined : bytes.subarray(end)
      return isUtf8(bytes.subarray(0, end))
    }) && begun === undefined
  )
}

/** Returns how many bytes at the end begin an incomplete character. */
function begunAtEnd(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] as number
    if (byte < 0x80) return 0
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? back : 0
  }
  return 0
}
