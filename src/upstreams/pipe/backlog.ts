import type { Answer, Channel, Message } from '../../mesh/call.ts'
import { ignore } from '../../mesh/cancel.ts'
import { errorText, INTERNAL_ERROR } from '../../protocol/jsonrpc.ts'

/** Most that may wait for the caller of one call, in bytes of text and in messages. */
export const MAX_BACKLOG_BYTES = 1024 ** 2
export const MAX_BACKLOG_MESSAGES = 1_000

interface Waiting {
  readonly message: Message
  readonly answer: Answer | undefined
  readonly bytes: number
}

/**
 * The messages that came for one call while its caller's connection was full. Callers that share a server's process must not
 * wait for somebody else's client. So the pipe goes on and messages queue here, in order and up to a bound.
 */
export class Backlog {
  readonly #channel: Channel
  readonly #overflow: () => void
  readonly #waiting: Waiting[] = []
  #bytes = 0
  #isFull = false
  #isOver = false
  #emptied: (() => void) | undefined

  /** `overflow` is told when more would wait than may: the call is to be ended then. */
  constructor(channel: Channel, overflow: () => void) {
    this.#channel = channel
    this.#overflow = overflow
  }

  /** Whether the connection asked to wait, so that what comes next has to queue. */
  get isFull(): boolean {
    return this.#isFull
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** The connection takes no more until `drained` is settled. */
  wait(drained: Promise<void>): void {
    this.#isFull = true
    const resume = () => {
      this.#isFull = false
      this.#pass()
    }
    drained.then(resume, resume)
  }

  /** Queues one message behind those that wait already. */
  add(message: Message, answer?: Answer): void {
    if (this.#isOver) return refuse(answer)
    const bytes = Buffer.byteLength(message.text)
    this.#waiting.push({ message, answer, bytes })
    this.#bytes += bytes
    if (this.#waiting.length > MAX_BACKLOG_MESSAGES || this.#bytes > MAX_BACKLOG_BYTES) this.#overflow()
  }

  /** Calls `emptied` once nothing waits any more; not after `drop`. */
  whenEmpty(emptied: () => void): void {
    this.#emptied = emptied
    this.#pass()
  }

  /** The call is over: nobody gets what still waits, and a server that asked is told so. */
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
  // The server that asked is gone.
  answer?.(errorText(null, INTERNAL_ERROR, 'the client does not read what it is sent')).catch(ignore)
}
