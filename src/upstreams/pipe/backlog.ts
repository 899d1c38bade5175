import type { Answer, Channel, Message } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import { errorText, INTERNAL_ERROR } from '../../protocol/jsonrpc.ts'

/** Most waiting text for one call's caller, in bytes and in messages. */
export const MAX_BACKLOG_BYTES = 1024 ** 2
export const MAX_BACKLOG_MESSAGES = 1_000

interface Waiting {
  readonly message: Message
  readonly answer: Answer | undefined
  readonly bytes: number
}

/**
 * The messages for a call whose caller's connection is full. Callers of a shared process must not wait for another
 * client. So the gateway continues to read from the process, and messages queue here, in order and up to a limit.
 */
export class Backlog {
  readonly #channel: Channel
  readonly #overflow: () => void
  readonly #waiting: Waiting[] = []
  #bytes = 0
  #isFull = false
  #isOver = false
  #emptied: (() => void) | undefined

  /** `overflow` is called above the limit: the call must end then. */
  constructor(channel: Channel, overflow: () => void) {
    this.#channel = channel
    this.#overflow = overflow
  }

  /** Whether the connection is full, so further messages must queue. */
  get isFull(): boolean {
    return this.#isFull
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** Queues further messages until `drained` settles. */
  wait(drained: Promise<void>): void {
    this.#isFull = true
    const resume = () => {
      this.#isFull = false
      this.#pass()
    }
    drained.then(resume, resume)
  }

  /** Queues a message behind the waiting messages. */
  add(message: Message, answer?: Answer): void {
    if (this.#isOver) return refuse(answer)
    const bytes = Buffer.byteLength(message.text)
    this.#waiting.push({ message, answer, bytes })
    this.#bytes += bytes
    if (this.#waiting.length > MAX_BACKLOG_MESSAGES || this.#bytes > MAX_BACKLOG_BYTES) this.#overflow()
  }

  /** Calls `emptied` once nothing waits; not after `drop`. */
  whenEmpty(emptied: () => void): void {
    this.#emptied = emptied
    this.#pass()
  }

  /** Ends the call: drops waiting messages, and answers the server's waiting requests with an error. */
  drop(): void {
    this.#isOver = true
    this.#emptied = undefined
    for (const { answer } of this.#waiting.splice(0)) refuse(answer)
    this.#bytes = 0
  }

  #pass(): void {
    while (!this.#isFull) {
      const next = this.#waiting.shift()
      if (next === undefined) return this.#emptied?.()
      this.#bytes -= next.bytes
      const sent = this.#channel.send(next.message, next.answer)
      if (sent !== undefined) this.wait(sent)
    }
  }
}

function refuse(answer: Answer | undefined): void {
  // A failure is ignored: the server that asked is gone.
  answer?.(errorText(null, INTERNAL_ERROR, 'the client does not read its messages')).catch(ignore)
}
