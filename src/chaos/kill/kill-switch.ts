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
  /** True while no fault may act. A plain field, because every call reads it while faults are armed. */
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
    // Writes the record before calling the listeners, because listeners may rely on the record.
    this.#record?.write({ by, why, at })
    for (const tell of this.#told) {
      try {
        tell()
      } catch {
        // The error is ignored, because all faults have stopped already and listeners only keep records.
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
 * Turns the kill switch on as soon as a file exists, whatever its type, including a dangling link. An existing file
 * turns the switch on before this function returns. Remove the file before lifting the switch, or the switch is turned
 * on again. Returns a function that ends the watch.
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

/** Returns true when a path exists. A path that cannot be examined counts as missing. */
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
 * A signal that releases all waiting calls once. A listener is removed in constant time, because a thousand calls may
 * wait. A throwing listener does not stop the other listeners.
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
        // The error is ignored, so that the next listener is still called.
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
