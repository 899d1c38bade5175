import type { Millis } from '../../mesh/clock.ts'
import { Release } from './release.ts'

/** Who threw the switch, and why. */
export interface Killed {
  readonly by: string
  readonly why: string
  /** How long it took until no fault held a call any more. */
  readonly tookMs: Millis
}

/**
 * The kill switch: one flag that blocks what is new, one signal that lets go of what is under way. It knows
 * nothing of the engine, so that no defect of the engine can keep it from working.
 */
export class KillSwitch {
  /** A plain field, read for every call while faults are armed. */
  on = false
  readonly #now: () => Millis
  readonly #told: (() => void)[] = []
  #release = new Release()
  #killed: Killed | undefined

  /** `now`: the monotonic clock. */
  constructor(now: () => Millis) {
    this.#now = now
  }

  /** Aborts when the switch is thrown; another one after it was lifted. */
  get signal(): Release {
    return this.#release
  }

  get killed(): Killed | undefined {
    return this.#killed
  }

  /** Throws it. When this returns, no fault is in effect any more; the calls that were held go on from here. */
  kill(by: string, why: string): void {
    if (this.on) return
    const since = this.#now()
    this.on = true
    this.#release.abort('killed')
    this.#killed = { by, why, tookMs: this.#now() - since }
    for (const tell of this.#told) {
      try {
        tell()
      } catch {
        // What is told afterwards is book-keeping: all effects have stopped by now.
      }
    }
  }

  /** Allows faults again. Nothing is armed by it. */
  lift(): void {
    if (!this.on) return
    this.#release = new Release()
    this.#killed = undefined
    this.on = false
  }

  /** Calls `tell` after each kill, whoever did it. */
  onKill(tell: () => void): void {
    this.#told.push(tell)
  }
}
