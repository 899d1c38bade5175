import { lstatSync } from 'node:fs'
import { lstat } from 'node:fs/promises'
import type { Millis, Cancel, Clock } from '../../mesh/clock.ts'
import type { KillRecord } from './kill-record.ts'
import type { Signal } from '../../mesh/cancel.ts'

/** A kill, with its author and its reason. */
interface Killed {
  readonly by: string
  readonly why: string
  /** In milliseconds since the Unix epoch. */
  readonly at: number
  /** How long it took until no fault held a call. */
  readonly tookMs: Millis
}

/**
 * The kill switch: a flag blocks new faults, a signal releases held calls. The switch knows nothing of the engine, so
 * no bug in the engine can disable the switch.
 */
export class KillSwitch {
  /** A plain field, read for every call while faults are armed. */
  on = false
  readonly #clock: Pick<Clock, 'now' | 'wall'>
  readonly #record: KillRecord | undefined
  readonly #told: (() => void)[] = []
  #release = new Release()
  #killed: Killed | undefined

  /** `record`: keeps a kill beyond the process. A kill left by an earlier process is in force from the start. */
  constructor(clock: Pick<Clock, 'now' | 'wall'>, record?: KillRecord) {
    this.#clock = clock
    this.#record = record
    const left = record?.read()
    if (left === undefined) return
    this.on = true
    this.#release.abort('killed')
    this.#killed = { ...left, tookMs: 0 }
  }

  /** Aborts on a kill; a new signal after each `lift`. */
  get signal(): Release {
    return this.#release
  }

  get killed(): Killed | undefined {
    return this.#killed
  }

  /** Kills all faults. On return, no fault is in effect; held calls continue. */
  kill(by: string, why: string): void {
    if (this.on) return
    const since = this.#clock.now()
    this.on = true
    this.#release.abort('killed')
    const at = this.#clock.wall()
    this.#killed = { by, why, at, tookMs: this.#clock.now() - since }
    // Before telling anyone: listeners may rely on the record.
    this.#record?.write({ by, why, at })
    for (const tell of this.#told) {
      try {
        tell()
      } catch {
        // Listeners only keep records: all effects have stopped already.
      }
    }
  }

  /** Allows faults again. Arms nothing. */
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

/** How often to look for the file, in milliseconds: short enough for a waiting person. */
const LOOK_EVERY_MS = 50

/**
 * Throws the switch as soon as a file exists, whatever its type, including a dangling link. An existing file throws the
 * switch before this returns, so nothing is armed meanwhile. Remove the file before lifting the switch, or the switch
 * is thrown again.
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

/** Whether a path exists. A path that cannot be examined counts as missing, at each look. */
export function exists(path: string): boolean {
  try {
    lstatSync(path)
    return true
  } catch {
    return false
  }
}

export type ReleaseReason = 'killed' | 'disarmed' | 'ended' | 'shadow' | 'protected'

/**
 * Releases all waiting calls, once. There may be a thousand: a listener is removed in constant time, and a throwing
 * listener does not stop the others.
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
        // The listener's own bug; the next listener must be told all the same.
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
