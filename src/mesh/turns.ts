import { type Cancel, type Clock, endOfTurn, nextTurn, pause, systemClock, type Millis } from './clock.ts'

/** Most work for a peer before the peer waits for a turn: messages plus copies, and bytes. */
const MOST_UNITS = 64
const MOST_BYTES = 256 * 1024

/** Copies of messages passed on so far. Messages are handled in sequence, so one counter serves all. */
let passedOn = 0

/** Counts a copy. Call once per receiver when a message goes to many receivers: every copy costs work. */
export function countCopy(): void {
  passedOn++
}

/**
 * Limits the work for one connection before a break. Counts messages and bytes and measures no time: a connection that
 * sends small messages singly waits once per 64 messages.
 */
export class TurnBudget {
  #units = 0
  #bytes = 0
  #copiesBefore = passedOn

  /** Call before handling a message. */
  begin(): void {
    this.#copiesBefore = passedOn
  }

  /** Call after handling a message; returns true when the next message must wait for `ownTurn`. */
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
 * Collects work from many sockets and does all of it in a row at the end of the event-loop turn. The promises then
 * settle side by side, so each step of a call follows the same step of another call and finds warm CPU caches. Saves a
 * seventh of the CPU per call under load.
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

  readonly flush = (): void => {
    const items = this.#items
    this.#items = []
    for (const item of items) this.#task(item)
  }
}

/** When a burst runs: after this many pieces of work, or this long after the first piece, in milliseconds. */
export interface BurstLimits {
  readonly pieces: number
  readonly ms: Millis
}

/**
 * Collects work that nobody waits for, and does it in a row. Runs at the end of the turn that brought enough work, or
 * after some time. Single pieces of work would find cold CPU caches, and take several times as long.
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

  readonly flush = (): void => {
    this.#cancel?.()
    this.#cancel = undefined
    const items = this.#items
    this.#items = []
    for (const item of items) this.#task(item)
  }
}

/**
 * After `LONG_MS` of turns from `ownTurn`, other work gets equal time, but at most `MOST_PAUSE_MS`. In milliseconds.
 */
const LONG_MS: Millis = 2
const MOST_PAUSE_MS: Millis = 100

/** Resolvers that wait for their own turn, in order per peer; the first peer is next. */
const waiting = new Map<unknown, (() => void)[]>()
let isServing = false

/**
 * Resolves in an event-loop turn in which no other promise of this function resolves. Readers of a large text, or of a
 * flood of small texts, ask for such turns. All other work waits for at most one of these turns, however many there
 * are; together the turns take at most half of the time. `peer` is the client or server that the work is for. Peers
 * alternate, so a peer that asks for many turns delays itself and not other peers.
 */
export function ownTurn(peer: unknown): Promise<void> {
  return new Promise((resolve) => {
    const own = waiting.get(peer)
    if (own === undefined) waiting.set(peer, [resolve])
    else own.push(resolve)
    if (!isServing) void serve()
  })
}

/** Returns the next resolver and moves its peer to the end; undefined when nobody waits. */
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
