import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { Signal } from '../../mesh/cancel.ts'

/** The pause between two test calls of a failing tool, in milliseconds: doubles from the first value to the last. */
const FIRST_PAUSE_MS: Millis = 100
const LONGEST_PAUSE_MS: Millis = 500

/** Concurrent retries when a tool works again; each success allows another. */
const FIRST_ALLOWANCE = 4
const MOST_ALLOWED = 64

/** How long a retry waits for a proof at most, in milliseconds. */
const PATIENCE_MS: Millis = 20_000

/** A retry still under way after this long, in milliseconds, holds no other retry back. */
const PLACE_MS: Millis = 2_000

/** A tool that has only failed for this long, in milliseconds, is broken: retries no longer wait for a proof. */
const BROKEN_MS: Millis = 30_000

/** Called once when a retry has ended, with whether it succeeded. */
export type Ended = (isGood: boolean) => void

interface Waiting {
  readonly failedAt: Millis
  /**
   * When the retry may test the tool itself. `retries`: how often its call was sent again before; the fewest go first.
   */
  readonly turnAt: Millis
  readonly retries: number
  go(): void
}

/**
 * Retries of a tool wait for a proof: a later call has succeeded. Without a proof, a single retry at a time tests the
 * tool. A failing tool thus gets only a few calls per second more than without retries, and most retries succeed. First
 * tries are never held back.
 */
export class Proof {
  readonly #clock: Clock
  /** When the latest successful call began. */
  #goodAt: Millis = -Infinity
  readonly #waiting = new Set<Waiting>()
  #underWay = 0
  #allowance = FIRST_ALLOWANCE
  #pauseMs: Millis = 0
  #nextTryAt: Millis = -Infinity
  /** When the unbroken run of failures began; undefined without failures. */
  #failingSince: Millis | undefined
  #failedAt: Millis = -Infinity
  #timer: Cancel | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  good(begunAt: Millis): void {
    if (begunAt > this.#goodAt) this.#goodAt = begunAt
    this.#pauseMs = 0
    this.#failingSince = undefined
    if (this.#waiting.size > 0) this.#pump()
  }

  bad(begunAt: Millis): void {
    if (begunAt < this.#goodAt) return
    const now = this.#clock.now()
    this.#allowance = FIRST_ALLOWANCE
    // After a long time without a failure, a new run of failures begins.
    if (now - this.#failedAt >= PATIENCE_MS) {
      this.#failingSince = undefined
      this.#pauseMs = 0
    }
    this.#failedAt = now
    this.#failingSince ??= now
    if (now < this.#nextTryAt) return
    this.#pauseMs = this.#pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2)
    this.#nextTryAt = now + this.#pauseMs
  }

  /**
   * Resolves when a retry may go, to a function for reporting its end; to undefined when there was no proof in time, or
   * `signal` aborted. `failedAt`: when the failed try began; `turnAt`: when the retry may test the tool by itself;
   * `retries`: how often its call was sent again before; `leftMs`: how long it can wait at most.
   */
  wait(
    {
      failedAt,
      turnAt,
      retries,
      leftMs,
    }: Pick<Waiting, 'failedAt' | 'turnAt' | 'retries'> & { readonly leftMs: Millis },
    signal: Signal,
  ): Promise<Ended | undefined> {
    const now = this.#clock.now()
    const isBroken = now - (this.#failingSince ?? now) >= BROKEN_MS
    const patienceMs = Math.min(leftMs, isBroken ? Math.max(1, turnAt - now + 1) : PATIENCE_MS)
    return new Promise((resolve) => {
      const end = (ended?: Ended) => {
        this.#waiting.delete(waiting)
        cancel()
        signal.removeEventListener('abort', late)
        resolve(ended)
      }
      const late = () => end()
      const waiting: Waiting = {
        failedAt,
        turnAt,
        retries,
        go: () => end(this.#take()),
      }
      const cancel = this.#clock.after(patienceMs, late)
      signal.addEventListener('abort', late)
      this.#waiting.add(waiting)
      this.#pump()
    })
  }

  /**
   * Takes a place for a retry; the returned function, called at its end, gives the place back. After `PLACE_MS` the
   * place is given back anyway.
   */
  #take(): Ended {
    this.#underWay++
    let isHeld = true
    const leave = () => {
      if (isHeld) this.#underWay--
      isHeld = false
    }
    const cancel = this.#clock.after(PLACE_MS, () => {
      leave()
      this.#pump()
    })
    return (isGood) => {
      cancel()
      leave()
      if (isGood && this.#allowance < MOST_ALLOWED) this.#allowance++
      this.#pump()
    }
  }

  #pump(): void {
    const now = this.#clock.now()
    let nextAt = Infinity
    let first: Waiting | undefined
    for (const waiting of this.#waiting) {
      if (waiting.failedAt < this.#goodAt) {
        if (this.#underWay < this.#allowance) waiting.go()
        continue
      }
      const tryAt = Math.max(waiting.turnAt, this.#nextTryAt)
      if (now < tryAt) nextAt = Math.min(nextAt, tryAt)
      else if (first === undefined || waiting.retries < first.retries) first = waiting
    }
    if (this.#underWay > 0) return
    if (first !== undefined) return first.go()
    if (nextAt === Infinity) return
    this.#timer?.()
    this.#timer = this.#clock.after(Math.max(1, nextAt - now), () => this.#pump())
  }
}
