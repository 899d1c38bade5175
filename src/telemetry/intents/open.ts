import type { Cancel, Clock, Millis } from '../../mesh/clock.ts'
import type { KnownIntent } from './intent.ts'

/** How precisely the line is in order, in milliseconds: a busy task need not go to its end with every call. */
const PLACE_MS: Millis = 100

export interface OpenIntentsParts {
  readonly clock: Clock
  /** One was quiet for long enough, and is open no more. */
  readonly over: (intent: KnownIntent) => void
  /** So is one that had to make room. */
  readonly evicted: (intent: KnownIntent) => void
}

/** The tasks that are not over, waiting for them to be quiet for a while. */
export class OpenIntents {
  readonly #parts: OpenIntentsParts
  /** The one that was quiet for the longest time comes first. */
  readonly #byKey = new Map<string, KnownIntent>()
  #idleMs: Millis = 30_000
  #max = 10_000
  #cancel: Cancel | undefined

  constructor(parts: OpenIntentsParts) {
    this.#parts = parts
  }

  get size(): number {
    return this.#byKey.size
  }

  /** From now on, at most `max`, each until it was quiet for `idle` milliseconds. */
  tune({ idle, max }: { readonly idle: Millis; readonly max: number }): void {
    this.#idleMs = idle
    this.#max = max
  }

  get(key: string): KnownIntent | undefined {
    return this.#byKey.get(key)
  }

  /** Takes in one more; the one that was quiet for the longest time makes room for it. */
  add(intent: KnownIntent): void {
    if (this.#byKey.size >= this.#max) this.#evict()
    this.#place(intent, this.#parts.clock.now())
  }

  /** It goes to the end of the line. While calls of it are under way, its place does not matter. */
  touch(intent: KnownIntent): void {
    const now = this.#parts.clock.now()
    if (now - intent.placedAt < PLACE_MS) intent.lastAt = now
    else this.#place(intent, now)
  }

  #place(intent: KnownIntent, now: Millis): void {
    intent.lastAt = now
    intent.placedAt = now
    this.#byKey.delete(intent.key)
    this.#byKey.set(intent.key, intent)
    this.#cancel ??= this.#parts.clock.after(this.#idleMs, this.#sweep)
  }

  remove(intent: KnownIntent): void {
    this.#byKey.delete(intent.key)
  }

  /** All are over now. */
  clear(): void {
    this.#cancel?.()
    this.#cancel = undefined
    for (const intent of this.#byKey.values()) this.#end(intent)
  }

  readonly #sweep = (): void => {
    const now = this.#parts.clock.now()
    this.#cancel = undefined
    for (const intent of this.#byKey.values()) {
      const leftMs = Math.ceil(intent.lastAt + this.#idleMs - now)
      if (leftMs > 0) {
        this.#cancel = this.#parts.clock.after(leftMs, this.#sweep)
        return
      }
      if (intent.underWay > 0) this.touch(intent)
      else this.#end(intent)
    }
  }

  #end(intent: KnownIntent): void {
    this.remove(intent)
    this.#parts.over(intent)
  }

  /** Takes one with calls under way only if it is its turn: it was quiet before they began. */
  #evict(): void {
    for (const oldest of this.#byKey.values()) {
      this.remove(oldest)
      this.#parts.evicted(oldest)
      return
    }
  }
}
