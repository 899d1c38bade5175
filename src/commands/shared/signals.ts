/** Calls `task` at each of these signals, in place of what they do otherwise. Returns how to stop that. */
export function onSignals(signals: readonly NodeJS.Signals[], task: () => void): () => void {
  for (const signal of signals) process.on(signal, task)
  return () => {
    for (const signal of signals) process.off(signal, task)
  }
}

/** Resolves at the first SIGTERM or SIGINT; a second one ends the process at once. */
export function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    let asked = false
    onSignals(['SIGTERM', 'SIGINT'], () => {
      if (asked) process.exit(1)
      asked = true
      resolve()
    })
  })
}
