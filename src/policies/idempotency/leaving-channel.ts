import type { Answer, Channel, Message } from '../../mesh/call.ts'
import { reasons } from '../../mesh/errors.ts'
import { errorText } from '../../protocol/jsonrpc.ts'

/** A caller's channel for as long as the caller is there; afterwards nobody hears, and questions are declined. */
export class LeavingChannel implements Channel {
  #channel: Channel | undefined

  constructor(channel: Channel) {
    this.#channel = channel
  }

  open(): void {
    this.#channel?.open()
  }

  pause(retryMs: number): void {
    this.#channel?.pause(retryMs)
  }

  send(message: Message, answer?: Answer): Promise<void> | undefined {
    if (this.#channel !== undefined) return this.#channel.send(message, answer)
    // A server that waited for an answer would wait until the call's time is up.
    answer?.(errorText('', reasons.cancelled.code, 'the caller has gone')).catch(() => undefined)
    return undefined
  }

  leave(): void {
    this.#channel = undefined
  }
}
