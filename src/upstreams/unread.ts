import { gatewayError } from '../mesh/errors.ts'
import { ownTurn } from '../mesh/turns.ts'

/** How much may wait until a server takes it. */
export interface UnreadLimits {
  readonly messages: number
  readonly bytes: number
}

/** From so many messages on that a server has not taken yet, it is not listened to until it has taken some. */
const PAUSE_FROM = 4

/** The limits for a server that is posted nothing but calls. */
export const NOTHING_POSTED: UnreadLimits = { messages: 0, bytes: 0 }

/**
 * Counts what a server was sent and has not taken yet. One that asks, or is called, without reading costs no more memory
 * than this: what comes on top is refused.
 */
export class Unread {
  readonly #limits: UnreadLimits
  #messages = 0
  #bytes = 0
  /** The waiters for the server to take some messages; undefined when nobody waits. */
  #listeners: (() => void)[] | undefined

  constructor(limits: UnreadLimits) {
    this.#limits = limits
  }

  /** Sends a text that counts until the server has taken it. Rejects with a `GatewayError`, also when there is no room for it. */
  async send(text: string, send: () => Promise<void>): Promise<void> {
    const bytes = this.admit(text)
    try {
      await send()
    } finally {
      this.release(bytes)
    }
  }

  /** Counts a text; returns its size, for `release`. Throws a `GatewayError` when there is no room; a single one always has. */
  admit(text: string): number {
    const { messages, bytes: most } = this.#limits
    const bytes = Buffer.byteLength(text)
    if (this.#messages >= messages || (this.#messages > 0 && this.#bytes + bytes > most)) {
      const waiting = `${this.#messages} of ${messages} messages, ${this.#bytes} of ${most} bytes`
      throw gatewayError('overloaded', `the server reads too slowly what it is sent (${waiting} wait for it)`)
    }
    this.#messages++
    this.#bytes += bytes
    return bytes
  }

  /** The server has taken it, or nobody wants it to any more. */
  release(bytes: number): void {
    this.#messages--
    this.#bytes -= bytes
    if (this.#messages >= PAUSE_FROM) return
    const listeners = this.#listeners
    this.#listeners = undefined
    for (const listen of listeners ?? []) listen()
  }

  /**
   * Returns a promise for the reader of a server's requests to wait for after each request; undefined while the server has taken most
   * messages. A server that asks without end is listened to as fast as it takes its answers, not as fast as it can write.
   * Everybody else gets breaks. `peer` takes the turn (`ownTurn`).
   */
  backpressure(peer: object = this): Promise<void> | undefined {
    if (this.#messages < PAUSE_FROM) return undefined
    const taken = new Promise<void>((resolve) => (this.#listeners ??= []).push(resolve))
    return taken.then(() => ownTurn(peer))
  }
}
