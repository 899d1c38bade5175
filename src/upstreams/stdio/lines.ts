import { ownTurn, TurnBudget } from '../../mesh/turns.ts'
import { ENDS, type Overlong } from '../../protocol/overlong.ts'

const LF = 0x0a
const CR = 0x0d

/** Memory kept between two lines, in bytes. */
const KEPT_BYTES = 64 * 1024

/** Splits bytes into lines of UTF-8. A line over the limit is never in memory as a whole. */
export class LineReader {
  readonly #limit: () => number
  #buffer = Buffer.allocUnsafe(0)
  #length = 0
  #head: string | undefined

  /** `limit`: longest line without its line break, in bytes; may change between chunks. */
  constructor(limit: () => number) {
    this.#limit = limit
  }

  /** Returns the lines completed by `chunk`. */
  *feed(chunk: Buffer): Generator<string | Overlong> {
    let at = 0
    for (;;) {
      const end = chunk.indexOf(LF, at)
      if (end === -1) break
      yield this.#complete(chunk.subarray(at, end))
      at = end + 1
    }
    if (at < chunk.length) this.#keep(chunk.subarray(at))
  }

  /** Returns the last line of a stream without a final line break. */
  *end(): Generator<string | Overlong> {
    if (this.#length > 0) yield this.#complete(Buffer.alloc(0))
  }

  #complete(rest: Buffer): string | Overlong {
    if (this.#length === 0 && rest.length <= this.#limit()) return textOf(rest)
    this.#keep(rest)
    const kept = this.#buffer.subarray(0, this.#length)
    const head = this.#head
    const line = head === undefined ? textOf(kept) : { head, tail: textOf(kept) }
    this.#head = undefined
    this.#length = 0
    if (this.#buffer.length > KEPT_BYTES) this.#buffer = Buffer.allocUnsafe(0)
    return line
  }

  #keep(part: Buffer): void {
    if (this.#head === undefined && this.#length + part.length <= this.#limit()) return this.#append(part)
    const kept = this.#buffer.subarray(0, this.#length)
    this.#head ??= Buffer.concat([kept.subarray(0, ENDS), part.subarray(0, ENDS)]).toString('utf8', 0, ENDS)
    this.#buffer = Buffer.concat([kept.subarray(-ENDS), part.subarray(-ENDS)]).subarray(-ENDS)
    this.#length = this.#buffer.length
  }

  /** Doubles the buffer, so a line in small pieces is not copied for each piece. */
  #append(part: Buffer): void {
    const needed = this.#length + part.length
    if (needed > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2))
      this.#buffer.copy(grown, 0, 0, this.#length)
      this.#buffer = grown
    }
    part.copy(this.#buffer, this.#length)
    this.#length = needed
  }
}

/**
 * Reads a stream line by line to its end. Reading waits for each promise of `take`. Reading also pauses after many
 * lines at once, so other servers get their turn; `peer`: the server for `ownTurn`. Rejects when the stream breaks.
 */
export async function readLines(
  stream: AsyncIterable<Buffer> | Iterable<Buffer>,
  limit: () => number,
  take: (line: string | Overlong) => Promise<void> | void,
  peer: unknown = stream,
): Promise<void> {
  const lines = new LineReader(limit)
  const turns = new TurnBudget()
  for await (const chunk of stream) {
    for (const line of lines.feed(chunk)) {
      turns.begin()
      const taken = take(line)
      if (taken !== undefined) await taken
      if (turns.spent(typeof line === 'string' ? line.length : limit())) await ownTurn(peer)
    }
  }
  for (const line of lines.end()) await take(line)
}

function textOf(line: Buffer): string {
  return line.toString('utf8', 0, line.at(-1) === CR ? line.length - 1 : line.length)
}
