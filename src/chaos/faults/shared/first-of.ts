import type { Signal } from '../../../mesh/cancel.ts'

/** Resolves as soon as the promise has settled or a signal has aborted. Which of them did, the caller can see. */
export function firstOf(settled: Promise<unknown>, ...signals: readonly Signal[]): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      for (const signal of signals) signal.removeEventListener('abort', end)
      resolve()
    }
    if (signals.some(({ aborted }) => aborted)) return end()
    for (const signal of signals) signal.addEventListener('abort', end)
    settled.then(end, end)
  })
}
