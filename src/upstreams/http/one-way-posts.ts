import { type Dispatcher, Pool } from 'undici'
import { gatewayError } from '../../mesh/errors.ts'

/** Most posts under way, over all senders and per sender; each has a socket. */
export const MOST_UNDER_WAY = 16
const MOST_OF_ONE = 2

/** Most unaccepted text, over all senders and per sender, in characters; a single message always fits. */
const MOST_TEXT = 64 * 1024 ** 2
const MOST_TEXT_OF_ONE = 1024 ** 2

/** A sender's number of posts under way, its waiting posts, and the size of both, in characters. */
interface Sender {
  underWay: number
  size: number
  readonly waiting: Set<() => void>
}

/**
 * Posts without answers: notifications of agents, and cancellations of their calls. Separate sockets, so no call waits
 * for a server slow to accept posts. Senders take turns, so no sender waits for all posts of another.
 */
export class OneWayPosts {
  readonly #pool: Pool
  readonly #most: number
  readonly #senders = new Map<object, Sender>()
  #underWay = 0
  #size = 0
  #isStarting = false

  /** Opens at most `connections` sockets, and never more than `MOST_UNDER_WAY`. */
  constructor(origin: string, { connections, ...options }: Pool.Options & { readonly connections: number }) {
    this.#most = Math.min(connections, MOST_UNDER_WAY)
    this.#pool = new Pool(origin, { ...options, connections: this.#most })
  }

  /**
   * Sends a request at the sender's turn; `request` creates it, `size` is its length in characters. Call the returned
   * function once, when the server has accepted the request or to give up. Throws a `GatewayError` when too much waits
   * already.
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

  /** Sends a post again after a redirect, over the same sockets and without another turn. */
  dispatchAgain(request: Dispatcher.DispatchOptions, reply: Dispatcher.DispatchHandler): void {
    this.#pool.dispatch(request, reply)
  }

  destroy(): Promise<void> {
    return this.#pool.destroy()
  }

  /** Starts waiting posts while sockets are free. After a turn, a sender goes behind all other senders. */
  #next(): void {
    // A post may fail at once, and call this method during its start.
    if (this.#isStarting) return
    this.#isStarting = true
    try {
      while (this.#underWay < this.#most && this.#startNext());
    } finally {
      this.#isStarting = false
    }
  }

  /** Returns false when no post may start. */
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
