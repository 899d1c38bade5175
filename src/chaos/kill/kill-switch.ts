import { lstatSync } from 'node:fs'
import { lstat } from 'node:fs/promises'
import type { Millis, Cancel, Clock } from '../../mesh/clock.ts'
import type { KillRecord } from './kill-record.ts'
import type { Signal } from '../../mesh/cancel.ts'

/** A kill, with its author and its reason. */
interface Killed {
  readonly by: string
  readonly why: string
  /** When, in milliseconds since the Unix epoch. */
  readonly at: number
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
  readonly #clock: Pick<Clock, 'now' | 'wall'>
  readonly #record: KillRecord | undefined
  readonly #told: (() => void)[] = []
  #release = new Release()
  #killed: Killed | undefined

  /** `record`: where a kill outlives the process. One that an earlier process left is in force from here on. */
  constructor(clock: Pick<Clock, 'now' | 'wall'>, record?: KillRecord) {
    this.#clock = clock
    this.#record = record
    const left = record?.read()
    if (left === undefined) return
    this.on = true
    this.#release.abort('killed')
    this.#killed = { ...left, tookMs: 0 }
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
    const since = this.#clock.now()
    this.on = true
    this.#release.abort('killed')
    const at = this.#clock.wall()
    this.#killed = { by, why, at, tookMs: this.#clock.now() - since }
    // Before anybody is told: whoever hears of a kill may rely on it.
    this.#record?.write({ by, why, at })
    for (const tell of this.#told) {
      try {
        tell()
      } catch {
        // Listeners do book-keeping only: all effects have stopped by now.
      }
    }
  }

  /** Allows faults again. Nothing is armed by it. */
  lift(): void {
    if (!this.on) return
    this.#record?.write(undefined)
    this.#release = new Release()
    this.#killed = undefined
    this.on = false
  }

  /** Calls `tell` after each kill, whoever did it. */
  onKill(tell: () => void): void {
    this.#told.push(tell)
  }
}

/** How often the file is looked for, in milliseconds: short enough for a person who waits. */
const LOOK_EVERY_MS = 50

/**
 * Throws the switch as soon as a file exists, whatever it is, a link that leads nowhere included; one that is there already before this returns, so that nothing is armed
 * meanwhile. It has to be gone before the switch is lifted, or it is thrown again.
 */
export function watchKillFile(path: string, kill: KillSwitch, clock: Clock): Cancel {
  let closed = false
  const found = () => {
    if (!closed) kill.kill('file', `${path} exists`)
  }
  const look = () => {
    void lstat(path)
      .then(found, () => undefined)
      .then(() => {
        if (!closed) cancel = clock.after(LOOK_EVERY_MS, look)
      })
  }
  if (exists(path)) found()
  let cancel = clock.after(LOOK_EVERY_MS, look)
  return () => {
    closed = true
    cancel()
  }
}

/** A path that cannot be looked at counts as missing, here as in each look to come. */
export function exists(path: string): boolean {
  try {
    lstatSync(path)
    return true
  } catch {
    return false
  }
}

/** Why held calls were let go. */
export type ReleaseReason = 'killed' | 'disarmed' | 'ended' | 'shadow' | 'protected'

/**
 * Lets go of everything that waits on it, once. A thousand calls may: a listener leaves in one step, and one
 * that throws keeps no other from being told.
 */
export class Release implements Signal {
  readonly #listeners = new Set<() => void>()
  #reason: ReleaseReason | undefined

  get aborted(): boolean {
    return this.#reason !== undefined
  }

  get reason(): ReleaseReason | undefined {
    return this.#reason
  }

  abort(reason: ReleaseReason): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    for (const tell of this.#listeners) {
      try {
        tell()
      } catch {
        // Its own defect; the next one must be let go all the same.
      }
    }
    this.#listeners.clear()
  }

  addEventListener(_: 'abort', listener: () => void): void {
    if (this.#reason === undefined) this.#listeners.add(listener)
  }

  removeEventListener(_: 'abort', listener: () => void): void {
    this.#listeners.delete(listener)
  }
}
