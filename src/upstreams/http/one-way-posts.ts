import { type Dispatcher, Pool } from 'undici'
import { gatewayError } from '../../mesh/errors.ts'

/** Most that are under way at a time, over all senders and of one of them; each has a socket. */
export const MOST_UNDER_WAY = 16
const MOST_OF_ONE = 2

/** Most that has not been taken yet, over all senders and of one of them, in characters; a single message of a sender is never too much for it. */
const MOST_TEXT = 64 * 1024 ** 2
const MOST_TEXT_OF_ONE = 1024 ** 2

/** The number of a sender's posts under way, the posts that wait for their turn, and the size of both, in characters. */
interface Sender {
  underWay: number
  size: number
  readonly waiting: Set<() => void>
}

/**
 * Posts that have no answer: notifications of agents, and cancellations of their calls. Over sockets of their own, so that no
 * call waits for a server that is slow to take these; and senders take turns, so that none waits for all that another has sent.
 */
export class OneWayPosts {
  readonly #pool: Pool
  readonly #most: number
  readonly #senders = new Map<object, Sender>()
  #underWay = 0
  #size = 0
  #isStarting = false

  /** `connections`: sockets that it may have, of which it takes `MOST_UNDER_WAY`, or fewer. */
  constructor(origin: string, { connections, ...options }: Pool.Options & { readonly connections: number }) {
    this.#most = Math.min(connections, MOST_UNDER_WAY)
    this.#pool = new Pool(origin, { ...options, connections: this.#most })
  }

  /**
   * Sends what `request` makes, of so many characters, when it is the sender's turn. What it returns is to be called once: when the server has
   * taken it, or it is given up. Throws a `GatewayError` when too much waits already.
   */
  dispatch(
    key: object,
    size: number,
    request: () => Dispatcher.DispatchOptions,
    reply: Dispatcher.DispatchHandler,
  ): () => void {
    const sender = this.#senders.get(key) ?? { underWay: 0, size: 0, waiting: new Set<() => void>() }
    if (this.#size + size > MOST_TEXT || (sender.size > 0 && sender.size + size > MOST_TEXT_OF_ONE))
      throw gatewayError('overloaded', 'the server is too slow to take notifications')
    const start = () => void this.#pool.dispatch(request(), reply)
    this.#senders.set(key, sender)
    this.#size += size
    sender.size += size
    sender.waiting.add(start)
    this.#next()
    return () => {
      this.#size -= size
      sender.size -= size
      if (!sender.waiting.delete(start)) {
        this.#underWay--
        sender.underWay--
      }
      if (sender.underWay === 0 && sender.waiting.size === 0) this.#senders.delete(key)
      this.#next()
    }
  }

  /** Sends one again that has had its turn, over the same sockets. */
  dispatchAgain(request: Dispatcher.DispatchOptions, reply: Dispatcher.DispatchHandler): void {
    this.#pool.dispatch(request, reply)
  }

  destroy(): Promise<void> {
    return this.#pool.destroy()
  }

  /** Starts what may start. Whoever has had a turn stands behind all others; no more than are under way are passed over. */
  #next(): void {
    // One that fails at once makes room within its start.
    if (this.#isStarting) return
    this.#isStarting = true
    try {
      while (this.#underWay < this.#most && this.#startNext());
    } finally {
      this.#isStarting = false
    }
  }

  /** False when nobody may start anything. */
  #startNext(): boolean {
    for (const [key, sender] of this.#senders) {
      if (sender.underWay === MOST_OF_ONE) continue
      for (const start of sender.waiting) {
        this.#senders.delete(key)
        this.#senders.set(key, sender)
        sender.waiting.delete(start)
        sender.underWay++
        this.#underWay++
        start()
        return true
      }
    }
    return false
  }
}
