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

/** An event that is kept; one that is not any more has no log. */
interface ReplayableEvent extends LoggedEvent {
  readonly bytes: number
  data: string
  log: ReplayLog | undefined
}

/** First in, first out. What is taken out in front leaves a gap, which is closed when it is half of all. */
class Queue {
  #items: (ReplayableEvent | undefined)[] = []
  #head = 0

  get size(): number {
    return this.#items.length - this.#head
  }

  get first(): ReplayableEvent | undefined {
    return this.#items[this.#head]
  }

  push(item: ReplayableEvent): void {
    this.#items.push(item)
  }

  shift(): ReplayableEvent | undefined {
    const { first } = this
    if (first === undefined) return undefined
    this.#items[this.#head++] = undefined
    if (this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head)
      this.#head = 0
    }
    return first
  }

  /** Only those for which `which` is true stay. */
  keep(which: (item: ReplayableEvent) => boolean): void {
    this.#items = this.all().filter(which)
    this.#head = 0
  }

  all(): ReplayableEvent[] {
    return this.#items.slice(this.#head) as ReplayableEvent[]
  }
}

/** What the logs of all sessions keep together. Bounded; the oldest events go first, whosever they are. */
export class ReplayBudget {
  /** Most bytes of all logs. */
  readonly limit: number
  readonly #dropped: () => void
  readonly #queue = new Queue()
  /** Events of the queue that their logs have dropped by themselves. */
  #gone = 0
  #bytes = 0

  /** `dropped` is told of each event that has to go because of this limit. */
  constructor(limit: number, dropped: () => void) {
    this.limit = limit
    this.#dropped = dropped
  }

  get bytes(): number {
    return this.#bytes
  }

  add(event: ReplayableEvent): void {
    this.#queue.push(event)
    this.#bytes += event.bytes
    while (this.#bytes > this.limit) {
      const { first } = this.#queue
      if (first === undefined) return
      if (first.log === undefined) {
        this.#queue.shift()
        this.#gone--
      } else {
        // Logs and queue have the same order: it is the oldest of its log, too.
        first.log.dropOldest()
        this.#dropped()
      }
    }
  }

  /** An event is kept no more. */
  forget({ bytes }: ReplayableEvent): void {
    this.#bytes -= bytes
    this.#gone++
    if (this.#gone * 2 <= this.#queue.size) return
    this.#queue.keep(({ log }) => log !== undefined)
    this.#gone = 0
  }
}

/** The last events of a session, over all its streams: what a client may ask for again. Bounded; the oldest go first. */
export class ReplayLog {
  readonly limits: ReplayLimits
  readonly #budget: ReplayBudget
  readonly #events = new Queue()
  #bytes = 0
  #isClosed = false

  constructor(limits: ReplayLimits, budget: ReplayBudget) {
    this.limits = limits
    this.#budget = budget
  }

  add({ stream, sequence, data }: LoggedEvent): void {
    if (this.#isClosed) return
    const bytes = Buffer.byteLength(data)
    const { events, bytes: own } = this.limits
    const most = Math.min(own, this.#budget.limit)
    // Room is made among its own first: what is too large to be kept must not cost other sessions theirs.
    while (this.#events.size > 0 && (this.#events.size >= events || this.#bytes + bytes > most))
      this.dropOldest()
    if (events === 0 || bytes > most) return
    const event: ReplayableEvent = { stream, sequence, data, bytes, log: this }
    this.#events.push(event)
    this.#bytes += bytes
    this.#budget.add(event)
  }

  dropOldest(): void {
    const event = this.#events.shift()
    if (event === undefined) return
    this.#bytes -= event.bytes
    event.log = undefined
    event.data = ''
    this.#budget.forget(event)
  }

  /** The events of one stream behind `sequence`, oldest first. */
  after(stream: number, sequence: number): LoggedEvent[] {
    return this.#events.all().filter((event) => event.stream === stream && event.sequence > sequence)
  }

  /** Nobody will ask for anything again. */
  close(): void {
    this.#isClosed = true
    while (this.#events.size > 0) this.dropOldest()
  }
}
