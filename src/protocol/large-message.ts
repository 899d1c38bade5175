import { isAscii, isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { StringDecoder } from 'node:string_decoder'
import { parseExactly } from './json-parse.ts'
import { BACKSLASH, type Edit, inOrder, type Span, splice } from './json-span.ts'
import { isObject, type Envelope } from './jsonrpc.ts'
import { type LongStrings, MOST_MEMBERS, type TopMember } from './long-strings.ts'

/** The random part of the marks that stand for long strings while the rest is parsed: no peer can write such a mark. */
const nonce = randomBytes(16).toString('hex')

/** A long string of a message, and the short one that stands for it in the outline. */
interface LongPart extends Span {
  /** The keys and indices that lead to it from the top. */
  readonly path: readonly (string | number)[]
  readonly mark: string
}

interface LargeMessageParts {
  /** Where the long strings are, in order. */
  readonly long?: readonly LongPart[]
  readonly members?: readonly TopMember[]
  /** Read when somebody asks for it, unless given. */
  readonly value?: Envelope['value'] | undefined
  readonly status?: number
}

/** The parts of a message with edits besides its text. */
export interface Edited {
  /** The value that `JSON.parse` would make of the text; read when somebody asks for it, unless given. */
  readonly value?: Envelope['value'] | undefined
  /** The HTTP status that goes with it; that of the message unless given. */
  readonly status?: number
}

/**
 * A message that stays the bytes that it came in. Its `value` is what `JSON.parse` would have made of it, but for long strings: they are
 * read when somebody asks for them, and so is its `text`. Most large messages are one long string that nobody in the gateway looks at,
 * and three copies of it are new memory for each call.
 */
export class LargeMessage implements Envelope {
  declare readonly text: string
  declare readonly value: Envelope['value']
  /** The status of the HTTP reply that the message came in; 200 unless given. */
  readonly status: number
  /** Private, so that who copies this object to give it another text does not copy them. */
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

  /** A response whose text has become bytes, which takes a while of a large one. */
  static of({
    text,
    value,
    status,
  }: Pick<LargeMessage, 'text' | 'status'> & Partial<Envelope>): LargeMessage {
    return new LargeMessage(new Bytes([Buffer.from(text)]), { value, status })
  }

  /** A JSON object whose long strings were found; undefined for anything else, and for bytes that are no UTF-8. */
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

  /** Whether an object is a large message itself, and no copy of one. */
  static is(message: object): message is LargeMessage {
    return #bytes in message
  }

  /** The bytes of the message, in order. */
  get chunks(): readonly Buffer[] {
    return this.#bytes.chunks
  }

  /** Length of its text in UTF-8, in bytes. */
  get byteLength(): number {
    return this.#bytes.length
  }

  /**
   * Where the values of members of these names begin and end, in bytes; undefined when not all are known, as of a message
   * that was edited. The last of equal keys counts.
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

  /** Whether a key is a name; one that is too long for it, whatever it is written with, is not looked at. */
  #says(key: Span, name: string): boolean {
    const isTooLong = key.end - key.start > 2 + name.length * LONGEST_ESCAPE
    return !isTooLong && this.#bytes.string(key) === name
  }

  /**
   * The message with edits of its bytes, which do not overlap and are in order; what stays is not copied. For the last edits of a message: its
   * outline is all of its text from then on.
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
   * The message with edits of its outline, which is its text with a short string in place of each long one: what `find` finds there, in any
   * order. An edit may replace a long string, or what one is in, but must not give one another path. Long strings are not copied.
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
    /** Goes on with the edits that begin at a place of the outline, or before it. */
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
 * A message with edits of its text, which `find` finds there, and all else that it has. For a large message `find` gets the outline
 * (`LargeMessage.edited`), and the result is a large message. Its value is read from its text unless given.
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

/** Length of the text of a message in UTF-8, in bytes. */
export function byteLengthOf(message: Pick<Envelope, 'text'>): number {
  return LargeMessage.is(message) ? message.byteLength : Buffer.byteLength(message.text)
}

const SPACE = 0x20

const U = 0x75

/** The length of `\u0041`, in bytes. */
const LONGEST_ESCAPE = 6

/** How much of a string that was not read yet is looked at for its beginning, in bytes. */
const BEGINNING = 64

/** A long string that nobody has read yet. */
interface Unread {
  /** The length of the string's JSON text, in bytes. */
  readonly length: number
  /** The first bytes of it. */
  first(): Buffer
}

/** The members of an object that are long strings, and that nobody has read yet. */
const unread = new WeakMap<object, Map<string | number, Unread>>()

/**
 * Whether a text member of a value is longer than so many characters, for certain: one that nobody has read yet is not read for this, and
 * its length is not known exactly then.
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
 * A text member of a value, or where that is a long string that nobody has read yet, the beginning of it, up to what is no white
 * space. Undefined where there is no text.
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

/** Length of the longest beginning of the bytes, which begin a string, that ends inside of no escape. */
function endOfWhole(bytes: Buffer): number {
  let at = 0
  for (let end = 0; end <= bytes.length;) {
    at = end
    end += bytes[at] !== BACKSLASH ? 1 : bytes[at + 1] === U ? LONGEST_ESCAPE : 2
  }
  return at
}

/** Defines a property whose value is found out when somebody asks for it first. */
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

/** The text with a short string in place of each long one, and where these are. */
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

/** Returns the value of a text; its long strings are read when somebody asks for them. */
function valueOf(bytes: Bytes, long: readonly LongPart[]): Envelope['value'] {
  const value = parseExactly(outlineOf(bytes, long).text) as Envelope['value']
  for (const part of long) putBack(value, bytes, part)
  return value
}

/** Puts a long string where its mark stands for it. The last of equal keys counts, and may not be the string's own. */
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

/** Bytes in several chunks, of which any piece is found without looking at all of them. */
class Bytes {
  readonly length: number
  readonly chunks: readonly Buffer[]
  /** Where each chunk begins. */
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

  /** Returns the value of a JSON string. */
  string(span: Span): string {
    return JSON.parse(this.text(span)) as string
  }

  /** Copies it only where it is in more than one chunk. */
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

  /** The first place from there on that holds no white space. */
  skipSpace(place: number): number {
    for (let index = this.#chunkAt(place); index < this.chunks.length; index++) {
      const chunk = this.chunks[index] as Buffer
      const before = this.#starts[index] as number
      for (let at = Math.max(0, place - before); at < chunk.length; at++)
        if ((chunk[at] as number) > SPACE) return before + at
    }
    return this.length
  }

  /** The last place up to there that has no white space before it. */
  skipSpaceBefore(place: number): number {
    for (let index = this.#chunkAt(place - 1); index >= 0; index--) {
      const chunk = this.chunks[index] as Buffer
      const before = this.#starts[index] as number
      for (let at = Math.min(chunk.length, place - before); at > 0; at--)
        if ((chunk[at - 1] as number) > SPACE) return before + at
    }
    return 0
  }

  /** The last chunk that does not begin behind a place. */
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

/** Whether chunks are UTF-8 together: a character may begin in one and end in the next. */
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

/** How many bytes at the end are the beginning of a character that is longer. */
function begunAtEnd(bytes: Buffer): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] as number
    if (byte < 0x80) return 0
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? back : 0
  }
  return 0
}
