import { Client, type Dispatcher } from 'undici'

/**
 * Connections for open streams, one per stream. A `Pool` of undici would work too, but keeps more state per connection,
 * even for closed connections. It also scans all connections for a free one at each new stream.
 */
export class StreamConnections {
  readonly #origin: string
  readonly #options: Client.Options
  readonly #clients = new Set<Client>()
  /** Connections kept for a little while after their stream. */
  readonly #free = new Set<Client>()
  #isClosed = false

  constructor(origin: string, options: Client.Options) {
    this.#origin = origin
    this.#options = { ...options, pipelining: 1 }
  }

  dispatch(request: Dispatcher.DispatchOptions, reply: Dispatcher.DispatchHandler): void {
    const [free] = this.#free
    const client = free ?? this.#begin()
    this.#free.delete(client)
    client.dispatch(request, reply)
  }

  async destroy(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#clients].map((client) => client.destroy()))
  }

  #begin(): Client {
    const client = new Client(this.#origin, this.#options)
    client.on('drain', this.#freed)
    client.on('disconnect', this.#gone)
    client.on('connectionError', this.#gone)
    this.#clients.add(client)
    if (this.#isClosed) void client.destroy()
    return client
  }

  // All clients share these handlers, because each event names its client; `drain` does too, although undici's types
  // omit this.

  readonly #freed = (_: URL, told?: readonly Dispatcher[]): void => {
    const client = told?.[0]
    if (client instanceof Client && client.stats.connected) this.#free.add(client)
  }

  readonly #gone = (_: URL, [client]: readonly Dispatcher[]): void => {
    if (!(client instanceof Client)) return
    this.#free.delete(client)
    // A client whose request was not written yet stays, because it connects again.
    if (client.stats.size === 0) this.#clients.delete(client)
  }
}
