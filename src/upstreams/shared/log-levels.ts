import type { Caller } from '../../mesh/call.ts'

/** Most verbose first. */
const levels = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']

/** What a caller gets that never asked, once another one did. */
const UNASKED = levels.indexOf('info')

/** The log level that each caller asked for, where a server knows only one. */
export class LogLevels {
  readonly #asked = new Map<Caller, number>()
  /** How many asked for each level. */
  readonly #counts = levels.map(() => 0)

  /** The most verbose level that was asked for; undefined when nobody did. */
  get effective(): string | undefined {
    return levels[this.#counts.findIndex((count) => count > 0)]
  }

  /** Returns what takes it back, for a server that declines; undefined for a level that does not exist. */
  ask(caller: Caller, level: unknown): (() => void) | undefined {
    const rank = levels.indexOf(level as string)
    if (rank === -1) return undefined
    const before = this.#asked.get(caller)
    this.#set(caller, rank)
    return () => this.#set(caller, before)
  }

  forget(caller: Caller): void {
    this.#set(caller, undefined)
  }

  #set(caller: Caller, rank: number | undefined): void {
    const before = this.#asked.get(caller)
    if (before !== undefined) this.#counts[before]!--
    if (rank === undefined) this.#asked.delete(caller)
    else {
      this.#asked.set(caller, rank)
      this.#counts[rank]!++
    }
  }

  /** Whether a caller wants messages of this level. */
  admits(caller: Caller, level: unknown): boolean {
    if (this.#asked.size === 0) return true
    const rank = levels.indexOf(level as string)
    return rank === -1 || rank >= (this.#asked.get(caller) ?? UNASKED)
  }
}
