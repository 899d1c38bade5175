import { gatewayError } from '../mesh/errors.ts'
import { ownTurn } from '../mesh/turns.ts'

/** How much may wait until a server takes it. */
export interface UnreadLimits {
  readonly messages: number
  readonly bytes: number
}

/** From so many messages on that a server has not taken yet, it is not listened to until it has taken some. */
const PAUSE_FROM = 4

/** Of a server that is posted nothing but calls. */
export const NOTHING_POSTED: UnreadLimits = { messages: 0, bytes: 0 }

/**
 * Counts what a server was sent and has not taken yet. One that asks, or is called, without reading costs no more memory
 * than this: what comes on top is refused.
 */
export class Unread {
  readonly #limits: UnreadLimits
  #messages = 0
  #bytes = 0
  /** Those who wait for it to take some, if anybody does. */
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
   * What whoever reads a server's requests waits for after each of them: one that asks without end is listened to as fast
   * as it takes its answers, not as fast as it can write, and with breaks for everybody else. Undefined while it has taken most of them.
   * `peer` takes the turn (`ownTurn`).
   */
  backpressure(peer: object = this): Promise<void> | undefined {
    if (this.#messages < PAUSE_FROM) return undefined
    const taken = new Promise<void>((resolve) => (this.#listeners ??= []).push(resolve))
    return taken.then(() => ownTurn(peer))
  }
}
