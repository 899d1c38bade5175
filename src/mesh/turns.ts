import { nextTurn, pause, systemClock, type Millis } from './clock.ts'

/** What one peer may have done for it before it has to wait: messages and copies of them, and bytes. */
const MOST_UNITS = 64
const MOST_BYTES = 256 * 1024

/** Copies of messages that were passed on so far. One message is dealt with before the next, so one counter serves all. */
let passedOn = 0

/** Whoever passes one message on to many says so for each of them: a message costs what is made of it. */
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

/** What turns may take before the others have as much time for themselves, and how much that is at most, in milliseconds. */
const LONG_MS: Millis = 2
const MOST_PAUSE_MS: Millis = 100

/** Those who wait for a turn of their own, in order. */
const waiting: (() => void)[] = []
let isServing = false

/**
 * Resolves in a turn of the event loop in which nobody else's does. Whoever reads a large text asks for one, and whoever
 * goes on with a flood of small ones: everybody else waits for one of them at most, however many there are, and all of
 * them together take half of the time at most.
 */
export function ownTurn(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve)
    if (!isServing) void serve()
  })
}

async function serve(): Promise<void> {
  isServing = true
  await nextTurn()
  let tookMs: Millis = 0
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
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
