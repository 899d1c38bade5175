import { gatewayError } from '../mesh/errors.ts'
import { ownTurn } from '../mesh/turns.ts'

/** Limits of texts not yet accepted by a server. */
export interface UnreadLimits {
  readonly messages: number
  readonly bytes: number
}

/** From this many unaccepted messages on, the gateway stops reading from the server until it has accepted some. */
const PAUSE_FROM = 4

/** Limits for a server without posts except calls. */
export const NOTHING_POSTED: UnreadLimits = { messages: 0, bytes: 0 }

/**
 * Counts texts not yet accepted by the server. Refuses excess texts, so a server that does not read costs no further
 * memory.
 */
export class Unread {
  readonly #limits: UnreadLimits
  #messages = 0
  #bytes = 0
  /** Callbacks of promises that wait for acceptance; undefined without any. */
  #listeners: (() => void)[] | undefined

  constructor(limits: UnreadLimits) {
    this.#limits = limits
  }

  /** Sends a text and counts its size until acceptance. Rejects with a `GatewayError`, also without room. */
  async send(text: string, send: () => Promise<void>): Promise<void> {
    const bytes = this.admit(text)
    try {
      await send()
    } finally {
      this.release(bytes)
    }
  }

  /** Counts a text; returns its size, for `release`. Throws a `GatewayError` without room; one text always fits. */
  admit(text: string): number {
    const { messages, bytes: most } = this.#limits
    const bytes = Buffer.byteLength(text)
    if (this.#messages >= messages || (this.#messages > 0 && this.#bytes + bytes > most)) {
      const waiting = `${this.#messages} of ${messages} messages, ${this.#bytes} of ${most} bytes`
      throw gatewayError('overloaded', `the server reads too slowly (${waiting} wait)`)
    }
    this.#messages++
    this.#bytes += bytes
    return bytes
  }

  /** Stops counting a text that was accepted or abandoned. */
  release(bytes: number): void {
    this.#messages--
    this.#bytes -= bytes
    if (this.#messages >= PAUSE_FROM) return
    const listeners = this.#listeners
    this.#listeners = undefined
    for (const listen of listeners ?? []) listen()
  }

  /**
   * Returns a promise to await after each server request; undefined while the server has accepted most messages. So a
   * server with endless requests is read only as fast as it accepts answers, and other servers get their turns. `peer`:
   * the server for `ownTurn`.
   */
  backpressure(peer: object = this): Promise<void> | undefined {
    if (this.#messages < PAUSE_FROM) return undefined
    const taken = new Promise<void>((resolve) => (this.#listeners ??= []).push(resolve))
    return taken.then(() => ownTurn(peer))
  }
}
