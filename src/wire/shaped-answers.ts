import type { AnswerShape, ShapedAnswer } from '../mesh/wire-shape.ts'
import { LARGE_TEXT } from '../mesh/work.ts'
import { isObject, kindOf, parseJson } from '../protocol/jsonrpc.ts'
import { endsOf, repliedId } from '../protocol/overlong.ts'

/** Most held answers of a pipe; further answers pass at once. */
const MOST_HELD = { answers: 1_000, bytes: 16 * 1024 ** 2 }

export interface AnswerShaperParts {
  /** Takes an unchanged text. */
  readonly pass: (text: string) => Promise<void> | undefined
  /** Takes the replacement of a text. Never rejects. */
  readonly instead: (answer: ShapedAnswer) => Promise<void> | undefined
}

/**
 * Changes the answer to a call as a fault demands, on a stream that carries the answers to all calls. Stands between
 * the server's messages and their reader. A shaped answer is read like any other output of the server.
 */
export class AnswerShaper {
  readonly #parts: AnswerShaperParts
  /** The shapes by request id. Empty without armed faults, so messages cost nothing extra. */
  readonly #shapes = new Map<number, AnswerShape>()
  /** Callbacks to end the wait of each held answer, oldest first. */
  readonly #held = new Set<() => void>()
  #heldBytes = 0
  #isOver = false

  constructor(parts: AnswerShaperParts) {
    this.#parts = parts
  }

  /** Changes the answer to a request as `shape` demands; the returned function undoes this. */
  add(id: number, shape: AnswerShape): () => void {
    this.#shapes.set(id, shape)
    return () => void this.#shapes.delete(id)
  }

  /** Takes a text. A promise means: wait before the next text. */
  pass(text: string): Promise<void> | undefined {
    return this.#shapes.size === 0 ? this.#parts.pass(text) : this.#find(text)
  }

  /** Ends the pipe and drops held answers. */
  end(): void {
    this.#isOver = true
    for (const drop of this.#held) drop()
  }

  #find(text: string): Promise<void> | undefined {
    const id = answeredId(text)
    const shape = id === undefined ? undefined : this.#shapes.get(id)
    if (shape === undefined) return this.#parts.pass(text)
    this.#shapes.delete(id as number)
    if (shape.released.aborted) return this.#parts.pass(text)
    const answer = shape.take(text)
    const bytes = Buffer.byteLength(text)
    const isHeld =
      answer.holdMs !== undefined &&
      this.#held.size < MOST_HELD.answers &&
      this.#heldBytes + bytes <= MOST_HELD.bytes
    if (!isHeld) return this.#parts.instead(answer)
    return this.#hold(answer, shape, bytes)
  }

  #hold(answer: ShapedAnswer, { clock, released }: AnswerShape, bytes: number): undefined {
    this.#heldBytes += bytes
    const over = new Promise<void>((resolve) => {
      const end = () => {
        if (!this.#held.delete(end)) return
        this.#heldBytes -= bytes
        cancel()
        released.removeEventListener('abort', end)
        if (!this.#isOver) void this.#parts.instead(answer)
        resolve()
      }
      const cancel = clock.after(answer.holdMs ?? 0, end)
      this.#held.add(end)
      released.addEventListener('abort', end)
    })
    answer.holds?.(over)
  }
}

/** Returns the id of the answered request; undefined when the text is no answer. */
function answeredId(text: string): number | undefined {
  if (text.length >= LARGE_TEXT) return repliedId(endsOf(text))
  const value = parseJson(text)
  if (!isObject(value) || kindOf(value) !== 'response') return undefined
  return typeof value.id === 'number' ? value.id : undefined
}
