import { Cancellation } from '../../mesh/cancel.ts'
import { keepAlive } from '../../mesh/clock.ts'

/**
 * Calls `task` at each of these signals, instead of the default action. Returns a function that restores the default
 * action.
 */
function onSignals(signals: readonly NodeJS.Signals[], task: () => void): () => void {
  for (const signal of signals) process.on(signal, task)
  return () => {
    for (const signal of signals) process.off(signal, task)
  }
}

/** Resolves at the first SIGTERM or SIGINT; a second signal ends the process at once. */
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

/** The abort reason when the user stops a command. */
export const INTERRUPTED = 'signal'

/** Functions to end started parts. The last part ends first. */
export type Closing = (() => Promise<unknown>)[]

/**
 * Runs a task, and then calls all functions of `closing`, even if the task rejects. The first signal aborts `stop`;
 * each later signal calls `again`.
 */
export async function endingInOrder<Result>(
  task: (stop: Cancellation, closing: Closing) => Promise<Result>,
  again: () => void = () => undefined,
): Promise<Result> {
  const stop = new Cancellation()
  const closing: Closing = []
  const off = onSignals(['SIGINT', 'SIGTERM', 'SIGHUP'], () =>
    stop.aborted ? again() : stop.abort(INTERRUPTED),
  )
  // Between two polls of a gateway, nothing else keeps the process alive.
  const letEnd = keepAlive()
  try {
    return await task(stop, closing)
  } finally {
    for (let end = closing.pop(); end !== undefined; end = closing.pop()) await end()
    letEnd()
    off()
  }
}
