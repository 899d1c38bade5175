import { access } from 'node:fs/promises'
import type { Cancel, Clock } from '../../mesh/clock.ts'
import type { KillSwitch } from './kill-switch.ts'

/** How often the file is looked for, in milliseconds: short enough for a person who waits. */
const LOOK_EVERY_MS = 50

/** Throws the switch as soon as a file exists. It has to be gone before the switch is lifted, or it is thrown again. */
export function watchKillFile(path: string, kill: KillSwitch, clock: Clock): Cancel {
  let closed = false
  let cancel: Cancel = () => undefined
  const look = () => {
    void access(path)
      .then(
        () => {
          if (!closed) kill.kill('file', `${path} exists`)
        },
        () => undefined,
      )
      .then(() => {
        if (!closed) cancel = clock.after(LOOK_EVERY_MS, look)
      })
  }
  look()
  return () => {
    closed = true
    cancel()
  }
}
