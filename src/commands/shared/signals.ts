import { Cancellation } from '../../mesh/cancel.ts'
import { keepAlive } from '../../mesh/clock.ts'

/** Calls `task` at each of these signals, in place of what they do otherwise. Returns how to stop that. */
function onSignals(signals: readonly NodeJS.Signals[], task: () => void): () => void {
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

/** Why a task is stopped: somebody interrupts it. */
export const INTERRUPTED = 'signal'

/** How to end what was started. The last part ends first. */
export type Closing = (() => Promise<unknown>)[]

/**
 * Runs a task that has to end in order, however often somebody asks: signals abort `stop`, and all that is in `closing` is
 * ended behind the task, also if that rejects. `again` is called at each signal after the first.
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
  // Between two looks at a gateway nothing else keeps the process alive.
  const letEnd = keepAlive()
  try {
    return await task(stop, closing)
  } finally {
    for (let end = closing.pop(); end !== undefined; end = closing.pop()) await end()
    letEnd()
    off()
  }
}
