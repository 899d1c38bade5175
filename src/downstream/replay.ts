/** An event that was sent, or will be when somebody listens. */
export interface LoggedEvent {
  readonly stream: number
  readonly sequence: number
  readonly data: string
}

export interface ReplayLimits {
  readonly events: number
  readonly bytes: number
}

/** The last events of a session, over all its streams: what a client may ask for again. Bounded; the oldest go first. */
export class ReplayLog {
  readonly limits: ReplayLimits
  #events: (LoggedEvent & { readonly bytes: number })[] = []
  #bytes = 0

  constructor(limits: ReplayLimits) {
    this.limits = limits
  }

  add(event: LoggedEvent): void {
    const bytes = Buffer.byteLength(event.data)
    this.#events.push({ ...event, bytes })
    this.#bytes += bytes
    while (this.#events.length > this.limits.events || this.#bytes > this.limits.bytes) {
      this.#bytes -= this.#events.shift()?.bytes ?? 0
    }
  }

  /** The events of one stream behind `sequence`, oldest first. */
  after(stream: number, sequence: number): LoggedEvent[] {
    return this.#events.filter((event) => event.stream === stream && event.sequence > sequence)
  }
}
