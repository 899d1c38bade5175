import { Client, type Dispatcher } from 'undici'

/**
 * Connections for streams that stay open: one for each, so that there are as many as streams. A `Pool` of undici would serve them as
 * well, but it keeps more beside each of them, all that it ever had when they are long gone, and for each new stream it looks at them in
 * turn until it finds one that is free.
 */
export class StreamConnections {
  readonly #origin: string
  readonly #options: Client.Options
  readonly #clients = new Set<Client>()
  /** The connections that are still there, for a little while, after their stream is over. */
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

  /** Drops all connections, and what goes on over them. */
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

  // One of each for all clients, which are told with the event; also with `drain`, of which undici's types do not say it.

  readonly #freed = (_: URL, told?: readonly Dispatcher[]): void => {
    const client = told?.[0]
    if (client instanceof Client && client.stats.connected) this.#free.add(client)
  }

  readonly #gone = (_: URL, [client]: readonly Dispatcher[]): void => {
    if (!(client instanceof Client)) return
    this.#free.delete(client)
    // One that was lost before its request was written connects again.
    if (client.stats.size === 0) this.#clients.delete(client)
  }
}
