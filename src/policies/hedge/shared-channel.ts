import type { Answer, Channel, Message } from '../../mesh/call.ts'

/** The channel of a call with several tries: the agent hears the first that has something to say, and no other. */
export class SharedChannel {
  readonly #channel: Channel
  #speaker: object | undefined

  constructor(channel: Channel) {
    this.#channel = channel
  }

  /** Whether some try has sent something. */
  get taken(): boolean {
    return this.#speaker !== undefined
  }

  /** From here on only `speaker` is heard. */
  leaveTo(speaker: object): void {
    this.#speaker = speaker
  }

  /**
   * The channel of one try, which is known by `speaker`. What it sends too late is dropped; a request of the server
   * among it can have no answer, so `mute` is told: that try cannot go on.
   */
  for(speaker: object, mute: () => void): Channel {
    const channel = this.#channel
    return {
      // Says nothing yet: many servers open a stream whatever they will send.
      open: () => channel.open(),
      pause: (retryMs) => {
        if (this.#speaker === undefined || this.#speaker === speaker) channel.pause(retryMs)
      },
      send: (message: Message, answer?: Answer) => {
        this.#speaker ??= speaker
        if (this.#speaker === speaker) return channel.send(message, answer)
        if (answer !== undefined) mute()
        return undefined
      },
    }
  }
}
