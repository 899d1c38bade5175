import { type Cancel, type Clock, endOfTurn, nextTurn, pause, systemClock, type Millis } from './clock.ts'

/** Limits on the work for one peer before the peer has to wait for a turn: messages and copies of messages, and bytes. */
const MOST_UNITS = 64
const MOST_BYTES = 256 * 1024

/** Copies of messages that were passed on so far. One message is dealt with before the next, so one counter serves all. */
let passedOn = 0

/** Counts one copy. Code that passes one message on to many receivers calls this for each receiver: every copy costs work. */
export function countCopy(): void {
  passedOn++
}

/**
 * How much one connection has had done for it without a break. Only messages are counted and no time is taken: who
 * sends one at a time waits for a turn in every 64 messages, and never otherwise.
 */
export class TurnBudget {
  #units = 0
  #bytes = 0
  #copiesBefore = passedOn

  /** Before a message is dealt with. */
  begin(): void {
    this.#copiesBefore = passedOn
  }

  /** After it: whether the next one has to wait for a turn (`ownTurn`). */
  spent(bytes: number): boolean {
    this.#units += 1 + passedOn - this.#copiesBefore
    this.#bytes += bytes
    if (this.#units < MOST_UNITS && this.#bytes < MOST_BYTES) return false
    this.#units = 0
    this.#bytes = 0
    return true
  }
}

/**
 * Work that comes piece by piece, from one socket after another, and is done at the end of the turn of the event loop in which it
 * came, all of it in a row. The promises of such pieces then settle side by side, so that one step of a call follows upon the same step of
 * the call before: what a core has in its caches it finds there again. Under load that is a seventh of the CPU of a call.
 */
export class TurnBatch<Item> {
  readonly #task: (item: Item) => void
  #items: Item[] = []

  /** `task` must not throw. */
  constructor(task: (item: Item) => void) {
    this.#task = task
  }

  add(item: Item): void {
    if (this.#items.push(item) === 1) endOfTurn(this.flush)
  }

  /** Does what waits, now. */
  readonly flush = (): void => {
    const items = this.#items
    this.#items = []
    for (const item of items) this.#task(item)
  }
}

/** When a burst is done: with so many pieces of work, or so long after the first of them, in milliseconds. */
export interface BurstLimits {
  readonly pieces: number
  readonly ms: Millis
}

/**
 * Work that nobody waits for, done in a row: at the end of the turn in which enough of it has come, or after some time. Code that runs now
 * and then finds none of what it needs in the caches, and takes several times as long as once more right after that.
 */
export class Burst<Item> {
  readonly #clock: Clock
  readonly #limits: BurstLimits
  readonly #task: (item: Item) => void
  #items: Item[] = []
  #cancel: Cancel | undefined

  /** `task` must not throw. */
  constructor(clock: Clock, limits: BurstLimits, task: (item: Item) => void) {
    this.#clock = clock
    this.#limits = limits
    this.#task = task
  }

  add(item: Item): void {
    const { pieces, ms } = this.#limits
    const count = this.#items.push(item)
    if (count === pieces) endOfTurn(this.flush)
    else if (count === 1) this.#cancel = this.#clock.after(ms, this.flush)
  }

  /** Does what waits, now. */
  readonly flush = (): void => {
    this.#cancel?.()
    this.#cancel = undefined
    const items = this.#items
    this.#items = []
    for (const item of items) this.#task(item)
  }
}

/** The time that turns may take before the others get as much time for themselves, and the longest such pause, in milliseconds. */
const LONG_MS: Millis = 2
const MOST_PAUSE_MS: Millis = 100

/** The resolvers that wait for a turn of their own, in order for each peer; the first peer has the next turn. */
const waiting = new Map<unknown, (() => void)[]>()
let isServing = false

/**
 * Resolves in a turn of the event loop in which no other promise of this function resolves. A reader of a large text
 * asks for such a turn, and so does a reader that goes on with a flood of small texts. Everybody else waits for one of
 * these turns at most, however many there are. All these turns together take half of the time at most. `peer` is the
 * client or server for whom the work is done. Peers take turns: a peer that asks for many turns
 * bears the wait, and not the peers that ask for one.
 */
export function ownTurn(peer: unknown): Promise<void> {
  return new Promise((resolve) => {
    const own = waiting.get(peer)
    if (own === undefined) waiting.set(peer, [resolve])
    else own.push(resolve)
    if (!isServing) void serve()
  })
}

/** The next one in turn; its peer is the last one then. */
function takeNext(): (() => void) | undefined {
  for (const [peer, own] of waiting) {
    waiting.delete(peer)
    const next = own.shift()
    if (own.length > 0) waiting.set(peer, own)
    return next
  }
  return undefined
}

async function serve(): Promise<void> {
  isServing = true
  await nextTurn()
  let tookMs: Millis = 0
  for (let next = takeNext(); next !== undefined; next = takeNext()) {
    const since = systemClock.now()
    next()
    await nextTurn()
    tookMs += systemClock.now() - since
    if (tookMs < LONG_MS) continue
    await pause(Math.min(tookMs, MOST_PAUSE_MS))
    tookMs = 0
  }
  isServing = false
}
