import { nextTurn } from './clock.ts'

/** What one peer may have done for it before everything else gets its turn: messages and copies of them, and bytes. */
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
 * sends one at a time has a break of one turn in every 64 messages, and never waits otherwise.
 */
export class TurnBudget {
  #units = 0
  #bytes = 0
  #copiesBefore = passedOn

  /** Before a message is dealt with. */
  begin(): void {
    this.#copiesBefore = passedOn
  }

  /** After it: whether there has to be a break now (`nextTurn`) before the next one. */
  spent(bytes: number): boolean {
    this.#units += 1 + passedOn - this.#copiesBefore
    this.#bytes += bytes
    if (this.#units < MOST_UNITS && this.#bytes < MOST_BYTES) return false
    this.#units = 0
    this.#bytes = 0
    return true
  }
}

/** Those who wait for a turn of their own, in order. */
const waiting: (() => void)[] = []

/**
 * Resolves in a turn of the event loop in which nobody else's does. Whoever reads a large text asks for one: everybody
 * else waits for one large text at most, however many have come at once.
 */
export function ownTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) void nextTurn().then(beginTurn)
  })
}

function beginTurn(): void {
  waiting.shift()?.()
  if (waiting.length > 0) void nextTurn().then(beginTurn)
}
