import { type Millis, systemClock } from '../../mesh/clock.ts'

/** Calls `task` at each of these signals, in place of what they do otherwise. Returns how to stop that. */
export function onSignals(signals: readonly NodeJS.Signals[], task: () => void): () => void {
  for (const signal of signals) process.on(signal, task)
  return () => {
    for (const signal of signals) process.off(signal, task)
  }
}

/** What comes so soon after the first signal is the same one, in milliseconds: `timeout` and shells tell a process and its group. */
const SAME_MS: Millis = 200

/** Resolves at the first SIGTERM or SIGINT; a second one ends the process at once. */
export function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    let askedAt: Millis | undefined
    onSignals(['SIGTERM', 'SIGINT'], () => {
      const now = systemClock.now()
      if (askedAt !== undefined && now - askedAt > SAME_MS) process.exit(1)
      askedAt ??= now
      resolve()
    })
  })
}
